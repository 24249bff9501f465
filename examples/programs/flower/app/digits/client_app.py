"""The client: trains the model that it receives on its own samples."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits import task

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train for a few epochs; reply with the weights and the number of samples."""
    index = int(context.node_config["partition-id"])
    data = task.training_part(index, int(context.node_config["num-partitions"]))
    model = [array.copy() for array in message.content["arrays"].to_numpy_ndarrays()]
    config = context.run_config
    task.train(model, data, int(config["epochs"]), float(config["rate"]), int(config["batch"]))
    loss, _ = task.evaluate(model, data)
    reply = RecordDict(
        {
            "arrays": ArrayRecord(model),
            "metrics": MetricRecord({"loss": loss, "num-examples": len(data[1])}),
        }
    )
    return Message(content=reply, reply_to=message)
