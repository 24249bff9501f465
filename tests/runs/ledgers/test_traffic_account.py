"""The account of the traffic of several servers, of which some may have received nothing."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from testbed.runs.ledgers.ledgers import Ledgers
from testbed.runs.ledgers.traffic_account import settle


def test_the_tables_of_servers_that_received_nothing_have_the_types_of_all_others(
    tmp_path: Path,
) -> None:
    each = [
        Ledgers(address, {"10.77.0.5": "worker-0"}, True, of=name)
        for name, address in (("server-0", "10.77.0.1"), ("server-1", "10.77.0.2"))
    ]
    settle(each, tmp_path)
    for table in ("accounting", "connections"):
        schema = pq.read_schema(tmp_path / f"{table}.parquet")
        assert schema.field("server").type == pa.string()
