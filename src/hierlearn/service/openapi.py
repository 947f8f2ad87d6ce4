"""OpenAPI: what the rows of this model look like, and its answers."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from hierlearn.datasets.tables.dates import ISO, split_form
from hierlearn.datasets.tables.kinds import base_kind, date_format
from hierlearn.decoding import DECODERS
from hierlearn.pipeline.input_columns import level_column_names
from hierlearn.service.model import Options
from hierlearn.service.requests import MOST_EVIDENCE

if TYPE_CHECKING:
    from hierlearn.service.model import ServedModel
    from hierlearn.service.rows import Inputs

NUMBER: dict[str, Any] = {"type": "number"}
TEXT: dict[str, Any] = {"type": "string"}
CELLS: dict[str, dict[str, Any]] = {
    "number": {"type": ["number", "string", "null"], "description": "a number"},
    "category": {"type": ["string", "number", "boolean", "null"], "description": "a category"},
    "text": {"type": ["string", "null"], "description": "a text"},
    "boolean": {"type": ["boolean", "string", "number", "null"], "description": "true or false"},
    "image": {"type": "string", "format": "byte", "description": "an image file in base64"},
}
EXAMPLES = {"number": 0.5, "category": "a", "text": "some words", "boolean": True, "image": ""}
ANSWERS = {
    "path": {**TEXT, "description": "the class, or the classes of a set; empty for the root"},
    "class": {**TEXT, "description": "the same by bare name"},
    "title": {**TEXT, "description": "of the class"},
    "probability": {"type": ["number", "string"], "description": "of the class"},
    "level": {"type": ["integer", "string"], "description": "of the class; 0 for the root"},
    "stopped": {
        "type": "boolean",
        "description": "whether the answer is above the terminal classes",
    },
}
ERROR = {"type": "object", "properties": {"error": TEXT}, "required": ["error"]}
REASONS = {
    400: "The body is not JSON in UTF-8.",
    401: "The token is missing or wrong.",
    403: "The server was started without a token.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or has too many rows.",
    422: "The rows or options do not fit the model; the sentence names the row and the column.",
    503: "The queue is full, or the request waited too long; Retry-After says when to try again.",
}


def cell_schema(kind: str) -> dict[str, Any]:
    """Return the schema of a cell."""
    if base_kind(kind) == "date":
        form = "YYYY-MM-DD" if date_format(kind) == ISO else date_format(kind)
        return {"type": ["string", "null"], "description": f"a date, {form}"}
    return CELLS[kind]


def example_cell(kind: str) -> Any:
    """Return a value of a kind."""
    if base_kind(kind) == "date":
        form, _ = split_form(date_format(kind))
        return datetime(2024, 5, 17).strftime("%Y-%m-%d" if form == ISO else form)
    return EXAMPLES[kind]


def row_schema(inputs: Inputs) -> dict[str, Any]:
    """Return the schema of a row: an object of columns, a value alone, or either."""
    vector: dict[str, Any] = {"type": "array", "items": {"type": ["number", "null"]}}
    if inputs.width is not None:
        vector |= {"minItems": inputs.width, "maxItems": inputs.width}
    if inputs.kind == "vectors":
        vector["items"] = NUMBER
    alone = {"texts": TEXT, "images": CELLS["image"], "numbers": vector, "vectors": vector}
    forms = []
    if inputs.named:
        kinds = inputs.kinds.items()
        cells = {n: vector if k == "vector" else cell_schema(k) for n, k in kinds}
        forms.append({"type": "object", "properties": cells, "required": list(cells)})
    if inputs.kind in alone:
        forms.append(alone[inputs.kind])
    return forms[0] if len(forms) == 1 else {"oneOf": forms}


def example_row(inputs: Inputs) -> Any:
    """Return a row as a request has it."""
    if inputs.kind == "vectors":
        vector = [0.5] * (inputs.width or 3)
        return {next(iter(inputs.kinds)): vector} if inputs.named else vector
    row = {name: example_cell(kind) for name, kind in inputs.kinds.items()}
    return row if inputs.named else next(iter(row.values()))


def answer_schema(model: ServedModel) -> dict[str, Any]:
    """Return the schema of an answer, with the columns of this model."""
    own = {name: ANSWERS[name] for name in model.decision(Options()).names}
    more = {
        f"{begin}{end}": {"type": ["number", "string", "null"] if end else "string"}
        for begin in (*level_column_names(model.pipeline), "top_1")
        for end in ("", "_probability")
    }
    return {
        "type": "object",
        "properties": {**own, **more},
        "required": list(own),
        "description": "Columns of levels come with by_level, top_1, top_2, ... with top.",
    }


def body(properties: dict[str, Any], required: list[str], example: Any) -> dict[str, Any]:
    """Return the description of the body of a request."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        "example": example,
    }
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def rows_schema(model: ServedModel, most: int) -> dict[str, Any]:
    """Return the schema of the rows of a request."""
    return {
        "type": "array",
        "items": row_schema(model.inputs),
        "minItems": 1,
        "maxItems": most,
        "description": f"at most {most:,}",
    }


def decoder_schema() -> dict[str, Any]:
    """Return the options of a decision."""
    return {
        "decoder": {**TEXT, "enum": sorted(DECODERS), "description": "instead of the model's own"},
        "threshold": {**NUMBER, "description": "of the decoder, such as stop"},
        "risk": {
            **NUMBER,
            "exclusiveMinimum": 0,
            "exclusiveMaximum": 1,
            "description": "the fraction of wrong answers to allow; finds the threshold by the "
            "rows of --calibrate, without which it is refused",
        },
    }


def predict_body(model: ServedModel, most: int) -> dict[str, Any]:
    """Describe a request to predict."""
    properties = {
        "rows": rows_schema(model, most),
        "top": {"type": "integer", "minimum": 1, "description": "add the most probable classes"},
        "by_level": {"type": "boolean", "description": "add the class of every level"},
        **decoder_schema(),
    }
    return body(properties, ["rows"], {"rows": [example_row(model.inputs)]})


def explain_body(model: ServedModel, most: int) -> dict[str, Any]:
    """Describe a request to explain."""
    count = {"type": "integer", "minimum": 1, "maximum": MOST_EVIDENCE, "default": 3}
    properties = {"rows": rows_schema(model, most), "count": count, **decoder_schema()}
    return body(properties, ["rows"], {"rows": [example_row(model.inputs)], "count": 3})


def remember_body(model: ServedModel, most: int) -> dict[str, Any]:
    """Describe a request to remember."""
    label = {"oneOf": [TEXT, {"type": "array", "items": TEXT}]}
    properties = {
        "rows": rows_schema(model, most),
        "labels": {"type": "array", "items": label, "description": "paths; new ones are added"},
        "ids": {"type": "array", "items": TEXT, "description": "by which rows are named"},
    }
    leaf = model.pipeline.hierarchy.names[int(model.pipeline.label_space.terminals[0])]
    example = {"rows": [example_row(model.inputs)], "labels": [leaf]}
    return body(properties, ["rows", "labels"], example)


def responses(schema: dict[str, Any], *codes: int) -> dict[int | str, Any]:
    """Describe the response of a path, and its refusals."""
    found: dict[int | str, Any] = {
        200: {"description": "OK", "content": {"application/json": {"schema": schema}}}
    }
    for code in codes:
        content = {"application/json": {"schema": ERROR}}
        found[code] = {"description": REASONS[code], "content": content}
    return found


def answers_schema(item: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a response with one answer per row."""
    answers = {"type": "array", "items": item, "description": "one per row, in order"}
    return {"type": "object", "properties": {"answers": answers}, "required": ["answers"]}


def explanation_schema(model: ServedModel) -> dict[str, Any]:
    """Return the schema of an answer with what it rests on."""
    answer = answer_schema(model)
    if model.has_memory:
        titles = {"titles": TEXT} if model.pipeline.hierarchy.has_titles else {}
        labels = {"type": "array", "items": TEXT}
        own = {"id": TEXT, "weight": NUMBER, "labels": labels, **titles, "text": TEXT}
        name, required = "rows", ["id", "weight", "labels"]
    else:
        own = {"part": TEXT, "effect": NUMBER, "without": NUMBER}
        name, required = "parts", list(own)
    item = {"type": "object", "properties": own, "required": required}
    properties = {**answer["properties"], name: {"type": "array", "items": item}}
    return {**answer, "properties": properties, "required": [*answer["required"], name]}
