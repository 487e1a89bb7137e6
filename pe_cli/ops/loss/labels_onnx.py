"""What losses of class numbers have in common in ONNX."""

from __future__ import annotations

from pe_cli.ops.define.onnx import Writer


def picked(o: Writer, logs: str, label: str, axis: int) -> str:
    """Return minus what stands at each label, 0 where the label is ignored."""
    ignored = o.node("Equal", [label, o.const(o.attrs["ignore_index"])])
    # An ignored label may be no class: class 0 is read in its place, and the 0 below written over it.
    safe = o.node("Where", [ignored, o.const(0), label])
    found = o.node("Neg", [o.node("GatherElements", [logs, safe], axis=axis)])
    return o.node("Where", [ignored, o.const(0.0, "Logits" if o.has("Logits") else "X"), found])
