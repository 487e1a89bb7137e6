"""`distributed`: which processes train one model, and how they share the work."""

from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, PlainValidator, StrictBool, WithJsonSchema

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import PathName

#: Servers of a training, at most.
MAX_SERVERS = 1024


class Geo(int):
    """Trainers update by themselves, and tell servers every so many steps."""


def _sync(value: object) -> Literal[True, "async", "half_async"] | Geo:
    # true is the only truth value: what false means in the original, updates without waiting, is called async here.
    if value is True:
        return True
    if value == "async" or value == "half_async":
        return "async" if value == "async" else "half_async"
    if isinstance(value, Geo):
        return value
    if isinstance(value, dict) and value.keys() == {"geo"}:
        every = value["geo"]
        if isinstance(every, int) and not isinstance(every, bool) and every >= 1:
            return Geo(every)
    raise ValueError("must be true, async, half_async, or {geo: N} with N steps between exchanges", "for example sync: {geo: 100}")


def _written(value: Literal[True, "async", "half_async"] | Geo) -> object:
    return {"geo": int(value)} if isinstance(value, Geo) else value


def _endpoint(value: object) -> str:
    # From the right, as an IPv6 address has colons of its own.
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 1 << 16:
        raise ValueError("must be host:port, such as 10.0.0.2:6174")
    # A port is written anew, so that 06174 and 6174 are one endpoint.
    return f"{host}:{int(port)}"


Sync = Annotated[
    Literal[True, "async", "half_async"] | Geo,
    PlainValidator(_sync),
    PlainSerializer(_written),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": True},
                {"enum": ["async", "half_async"]},
                {
                    "type": "object",
                    "properties": {"geo": {"type": "integer", "minimum": 1}},
                    "required": ["geo"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
Endpoint = Annotated[str, PlainValidator(_endpoint), WithJsonSchema({"type": "string"})]


class DistributedSection(Section):
    """Which processes train one model, and how they share the work; `mpiexec -n` or `pe launch -n` says how many there are."""

    mode: Literal["collective", "parameter_server"] = Field(
        default="collective",
        description="collective: all processes train and sum their gradients; parameter_server: the last `servers` of the processes hold "
        "the parameters and update them, the others train",
    )
    servers: Annotated[int, Field(strict=True, ge=1, le=MAX_SERVERS)] | None = Field(
        default=None, description="parameter_server: how many of the processes are servers"
    )
    sync: Sync = Field(
        default=True,
        description="parameter_server: true: servers wait for all trainers and apply the mean of their gradients; async: servers apply "
        "each gradient as it comes; half_async: as async, and gradients are cut when they are sent; {geo: N}: trainers update by "
        "themselves, and every N steps send what they have learned",
    )
    min_block_size: Annotated[int, Field(strict=True, ge=1)] = Field(
        default=8192, description="parameter_server: parameters are cut into blocks of whole rows of at least so many elements"
    )
    slice_var_up: StrictBool = Field(default=True, description="parameter_server: cut parameters; false: each is on one server")
    split_method: Literal["RoundRobin", "HashName"] = Field(
        default="RoundRobin", description="parameter_server: blocks go to servers in turn, or by a hash of their names"
    )
    endpoints: list[Endpoint] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_SERVERS,
        description="parameter_server: host:port of every server; found out when absent",
    )
    secret: PathName | None = Field(
        default=None,
        description="parameter_server: file with a text that only the processes know, which nobody else can read (mode 600); needed where "
        "servers can be reached from other machines, and neither `pe launch` starts the processes nor MPI tells them where servers are",
    )
