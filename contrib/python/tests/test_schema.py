"""Each schema builder, and the arguments that it refuses."""

import unittest
from typing import Any, Callable, Dict, List, Tuple

from svc.methods import schema as s


class Builders(unittest.TestCase):
    def test_every_keyword_gets_its_name(self) -> None:
        built: List[Tuple[Any, Dict[str, Any]]] = [
            (s.string(), {"type": "string"}),
            (
                s.string(format="date", min_length=0, max_length=9, pattern="^a"),
                {"type": "string", "format": "date", "minLength": 0, "maxLength": 9, "pattern": "^a"},
            ),
            (s.integer(minimum=0, maximum=5), {"type": "integer", "minimum": 0, "maximum": 5}),
            (s.number(minimum=-0.5, maximum=1), {"type": "number", "minimum": -0.5, "maximum": 1}),
            (s.boolean(default=False), {"type": "boolean", "default": False}),
            (s.null(description="nothing"), {"type": "null", "description": "nothing"}),
            (
                s.array(s.string(), min_items=1, max_items=2),
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
            ),
            (s.object(), {"type": "object", "properties": {}, "additionalProperties": False}),
            (s.string(enum=("a", "b")), {"type": "string", "enum": ["a", "b"]}),
        ]
        for schema, wanted in built:
            self.assertEqual(schema, wanted)

    def test_properties_are_required_unless_optional_and_sorted(self) -> None:
        schema = s.object(b=s.string(), c=s.optional(s.integer(), 10), a={"type": "null"}, additional_properties=True)
        self.assertEqual(
            schema,
            {
                "type": "object",
                "properties": {"b": {"type": "string"}, "c": {"type": "integer", "default": 10}, "a": {"type": "null"}},
                "required": ["a", "b"],
                "additionalProperties": True,
            },
        )
        self.assertEqual(s.object(additional_properties=s.null())["additionalProperties"], {"type": "null"})

    def test_what_is_given_wins_over_extra_and_extra_over_the_default(self) -> None:
        extra = {"minLength": 1, "title": "T", "type": "number"}
        self.assertEqual(s.string(min_length=2, extra=extra), {"type": "string", "minLength": 2, "title": "T"})
        self.assertEqual(s.object(extra={"additionalProperties": True})["additionalProperties"], True)
        self.assertEqual(
            s.object(additional_properties=False, extra={"additionalProperties": True})["additionalProperties"], False
        )
        self.assertEqual(s.object(a=s.null(), extra={"properties": {}})["properties"], {"a": {"type": "null"}})

    def test_optional_leaves_what_it_wraps_as_it_was(self) -> None:
        plain = s.string(default="x")
        self.assertEqual(s.object(a=s.optional(plain, "y"))["properties"]["a"]["default"], "y")
        self.assertEqual(s.object(a=s.optional(plain))["properties"]["a"]["default"], "x")
        self.assertEqual(plain, {"type": "string", "default": "x"})

    def test_a_property_may_have_the_name_of_a_keyword(self) -> None:
        schema = s.object(description=s.string(), default=s.optional(s.null()), enum={"type": "null"}, extra=s.null())
        self.assertEqual(sorted(schema["properties"]), ["default", "description", "enum", "extra"])
        self.assertEqual(schema["required"], ["description", "enum", "extra"])
        self.assertNotIn("description", schema)

    def test_misuse_is_named(self) -> None:
        misuses: List[Tuple[Callable[..., Any], Dict[str, Any], str]] = [
            (s.string, {"min_len": 1}, "min_len"),
            (s.boolean, {"minimum": 1}, "minimum"),
            (s.integer, {"min_length": 1}, "min_length"),
            (s.string, {"min_length": "1"}, "`min_length` is a whole number"),
            (s.string, {"max_length": -1}, "`max_length`"),
            (s.string, {"max_length": True}, "`max_length`"),
            (s.number, {"minimum": float("nan")}, "`minimum` is a number"),
            (s.string, {"pattern": 5}, "`pattern` is a string"),
            (s.string, {"enum": "ab"}, "`enum` is a list"),
            (s.string, {"extra": ["title"]}, "`extra` is a dict"),
            (s.array, {"items": "string"}, "`items` is a schema"),
            (s.array, {"items": s.optional(s.string())}, "`items` cannot be optional"),
            (s.object, {"min_items": 1}, "`min_items` is no keyword of an object"),
            (s.object, {"additional_properties": 1}, "`additional_properties`"),
            (s.object, {"description": 1}, "`description` is a string"),
            (s.optional, {"schema": 5}, "`schema` is a schema"),
        ]
        for builder, keywords, part in misuses:
            with self.assertRaises(TypeError) as raised:
                builder(**keywords)
            self.assertIn(part, str(raised.exception))


if __name__ == "__main__":
    unittest.main()
