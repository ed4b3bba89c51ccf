"""YAML as settings use it: values in a shallow tree, each said once.

A file of 100 bytes can stand for a circle or for a billion values, and one of 5,000 brackets ends a recursive
reader. Settings need neither, so both are errors with a line, as are names that are there twice.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

_DEPTH_MAX: Final = 20


class StrictLoader(yaml.SafeLoader):
    """Reads YAML without aliases and repeated names, as deep as settings go; raises `yaml.YAMLError`."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401 - yaml has no types
        """The next node; see PyYAML's `Composer`."""
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="settings have no aliases", problem_mark=mark)
        if self._depth == _DEPTH_MAX:
            raise yaml.MarkedYAMLError(problem="it is nested too deeply", problem_mark=mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002
        """The value of a node; see PyYAML's `BaseConstructor`."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError):
            what = "there is no such number or date"
            raise yaml.MarkedYAMLError(problem=what, problem_mark=node.start_mark) from None

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: ANN401, FBT001, FBT002
        """The values of a node by their names; see PyYAML's `BaseConstructor`."""
        names: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in names:
                raise yaml.MarkedYAMLError(problem=f"{key.value} is there twice", problem_mark=key.start_mark)
            names.add(key.value)
        return super().construct_mapping(node, deep)
