"""Tables as pandas DataFrames. pandas is an extra: nothing else of the testbed needs it."""

from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError

if TYPE_CHECKING:
    import pandas as pd


def frame(table: Any) -> "pd.DataFrame":
    """Return an Arrow table as a DataFrame.

    Raises:
        TestbedError: pandas is not installed.
    """
    try:
        import pandas  # noqa: F401 - Arrow makes the frame
    except ImportError:
        raise TestbedError(
            "pandas is not installed, and this is a DataFrame: `pip install 'testbed[notebook]'`; or "
            "use .updates(), .evaluations() and .records(), which need only pyarrow"
        ) from None
    return table.to_pandas()
