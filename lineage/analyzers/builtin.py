"""The analyzers of the facets that dbt and Airflow send, and the one that compares schemas."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from .analyzer import (
    COLUMN_LINEAGE,
    LINEAGE_OF_JOB,
    Catalog,
    Found,
    columns_of,
    datasets_of,
    facet_of,
    inferred,
    named_in,
)


class DbtAnalyzer:
    """Adds what dbt calls exposures."""

    name = "dbt"
    covers = "the dbt facet `dbt_exposures`: dashboards, notebooks and the like that use a model or a source"
    confidence = 1.0
    facets = ("dbt_exposures",)

    def analyze(self, event: Found, catalog: Catalog) -> Found | None:  # noqa: ARG002 - the facet says all
        """Return the job facet `lineage`, from datasets to exposures; those of outputs are outputs too."""
        entries: dict[tuple[str, str], Found] = {}
        outputs: list[Found] = []
        written = datasets_of(event, "outputs")
        for one in (*datasets_of(event, "inputs"), *written):
            used = {**named_in(one), "type": "DATASET"}
            for exposure in (one["facets"].get("dbt_exposures") or {}).get("exposures") or ():
                named = {"namespace": exposure.get("type") or "exposure", "name": exposure["name"]}
                entry = {**named, "type": "DATASET", "inputs": []}
                entries.setdefault((named["namespace"], named["name"]), entry)["inputs"].append(used)
                outputs += [named] if one in written and named not in outputs else []
        if not entries:
            return None
        lineage = facet_of(LINEAGE_OF_JOB, entries=[*entries.values()])
        facets = {"lineage": lineage, **inferred("declared as a dbt exposure")}
        inputs = [named_in(one) for one in datasets_of(event, "inputs")]
        return {"inputs": inputs, "outputs": outputs, "job": {"facets": facets}}


class AirflowAnalyzer:
    """Adds the order of the tasks of a DAG."""

    name = "airflow"
    covers = (
        "Airflow's run facet `airflow`: the tasks before and after this one, and the DAG that it triggers"
    )
    confidence = 1.0
    facets = ("airflow",)

    def analyze(self, event: Found, catalog: Catalog) -> Found | None:  # noqa: ARG002 - the facet says all
        """Return the job facet `lineage`, from each of these jobs to the next."""
        facet = ((event.get("run") or {}).get("facets") or {}).get("airflow") or {}
        task, dag = facet.get("task") or {}, (facet.get("dag") or {}).get("dag_id")
        if not dag:
            return None

        def job(name: str) -> Found:
            return {"type": "JOB", "namespace": event["job"]["namespace"], "name": name}

        before = [job(f"{dag}.{one}") for one in _ids(task.get("upstream_task_ids"))]
        after = [job(f"{dag}.{one}") for one in _ids(task.get("downstream_task_ids"))]
        after += [job(triggered)] if (triggered := task.get("trigger_dag_id")) else []
        entries = [{"type": "JOB", "inputs": before}] if before else []
        entries += [{**one, "inputs": [{"type": "JOB"}]} for one in after]
        if not entries:
            return None
        lineage = facet_of(LINEAGE_OF_JOB, entries=entries)
        return {"job": {"facets": {"lineage": lineage, **inferred("the DAG's order of tasks")}}}


class GenericAnalyzer:
    """Takes columns of the same name and type to pass through."""

    name = "generic"
    covers = (
        "the schemas of inputs and outputs: a column of the same name and type passes through, where nothing "
        "better is known"
    )
    confidence = 0.3
    facets = ("schema",)

    def analyze(self, event: Found, catalog: Catalog) -> Found | None:
        """Return the facet `columnLineage` of each output that has none.

        Spark's listener reads the plan. Where it says nothing of columns, a function makes them that it does
        not know, such as one of Python.
        """
        if (event["job"].get("facets") or {}).get("jobType", {}).get("integration") == "SPARK":
            return None
        inputs = datasets_of(event, "inputs")
        outputs = [
            {**named_in(one), "facets": {"columnLineage": lineage}}
            for one in datasets_of(event, "outputs")
            if "columnLineage" not in one["facets"]
            and (lineage := self._pass_through(one, inputs, catalog)) is not None
        ]
        if not outputs:
            return None
        return {"outputs": outputs, "job": {"facets": inferred("columns of the same name and type")}}

    def _pass_through(self, output: Found, inputs: Iterable[Found], catalog: Catalog) -> Found | None:
        fields: dict[str, Found] = {}
        how = {"type": "DIRECT", "subtype": "IDENTITY", "description": "", "masking": False}
        for column, kind in columns_of(output, catalog).items():
            origins = [
                {**named_in(one), "field": column, "transformations": [how]}
                for one in inputs
                if columns_of(one, catalog).get(column) == kind
            ]
            fields[column] = {"inputFields": origins}
        if not any(field["inputFields"] for field in fields.values()):
            return None
        return facet_of(COLUMN_LINEAGE, fields=fields)


def _ids(told: Any) -> list[str]:  # noqa: ANN401 - as the provider sends it
    """Airflow's lists of tasks, which some versions send as the text of a Python list."""
    if isinstance(told, str):
        told = ast.literal_eval(told)
    return sorted(one for one in told or () if isinstance(one, str))
