"""What all parts of an experiment file have in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen mapping that accepts nothing it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
