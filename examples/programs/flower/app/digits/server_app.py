"""The server: federated averaging, and an evaluation of the global model after each round."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits import task

app = ServerApp()


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Print and return the global model's accuracy on samples that no client holds."""
    loss, accuracy = task.evaluate(arrays.to_numpy_ndarrays(), task.test_part())
    print(f"round={server_round} accuracy={accuracy:.4f} loss={loss:.4f}", flush=True)
    return MetricRecord({"accuracy": accuracy, "loss": loss})


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds; each waits for `clients` clients and uses all that are there."""
    config = context.run_config
    clients = int(config["clients"])
    model = task.new_model(int(config["hidden"]), int(config["seed"]))
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(model),
        num_rounds=int(config["rounds"]),
        evaluate_fn=evaluate,
    )
