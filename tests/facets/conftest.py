"""What Hypothesis draws for the types of `waybill.facets`.

The pools are small on purpose: laws of merging say something only where times, keys and names meet often.
"""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from waybill.facets import FinalState, ProvenanceRecord, RunEvent, decode_event

WORDS = st.sampled_from(["", "a", "b"])
MAYBE = st.none() | WORDS
ANNOTATIONS = st.dictionaries(st.sampled_from(["k", "l", "m"]), WORDS)
INSTANTS = st.sampled_from(
    [
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00.000001Z",
        "2026-01-01T00:00:00.5",
        "2026-01-01T00:30:00+01:00",
        "2026-01-02T00:00:00.123456789Z",
    ]
)

st.register_type_strategy(
    ProvenanceRecord,
    st.builds(
        ProvenanceRecord,
        did=st.sampled_from(["d1", "d2"]),
        parent_did=MAYBE,
        system_name=st.sampled_from(["s", "t"]),
        data_source=WORDS,
        filename=WORDS,
        transforms=st.lists(WORDS, max_size=1).map(tuple),
        data_sink=st.sampled_from([None, "", "sink"]),
        final_state=st.sampled_from([FinalState.COMPLETE, FinalState.ERROR]),
        created=st.integers(1, 3),
        completed=st.integers(3, 4),
        annotations=st.none() | ANNOTATIONS,
    ),
)

DATASETS = st.fixed_dictionaries(
    {"namespace": st.sampled_from(["s3://in", "file"]), "name": st.sampled_from(["/a/b", "c/", ""])},
    optional={
        "facets": st.sampled_from(
            [{}, {"lifecycleStateChange": {"lifecycleStateChange": "DROP"}}, {"lifecycleStateChange": 1}]
        ),
        "outputFacets": st.just({"outputStatistics": {"rowCount": 1}}),
    },
)
SAYINGS = st.dictionaries(
    st.sampled_from(["did", "parent_did", "data_sink", "final_state", "transforms", "filename", "note", ""]),
    st.sampled_from(["", "x", "y", "a, b,", "ERROR", "COMPLETE", "BANANA"]),
    max_size=3,
)
TAGS = st.lists(
    st.tuples(st.sampled_from(["waybill_", ""]), SAYINGS).flatmap(
        lambda said: (
            st.sampled_from([{"key": said[0] + k, "value": v} for k, v in said[1].items()])
            if said[1]
            else st.just({"key": "env", "value": "prod"})
        )
    ),
    max_size=3,
)
RUN_FACETS = {
    "parent": st.fixed_dictionaries(
        {
            "run": st.fixed_dictionaries({"runId": st.sampled_from(["p", "q"])}),
            "job": st.just({"namespace": "n", "name": "parent"}),
        }
    ),
    "waybill_presented": st.just(
        {"jobName": "job", "parent": {"run": {"runId": "q"}, "job": {"namespace": "n", "name": "parent"}}}
    ),
    "errorMessage": st.fixed_dictionaries({"message": st.sampled_from(["first\nsecond", "other", "", "\n"])}),
    "tags": st.fixed_dictionaries({"tags": TAGS}),
    "waybill_inferred": st.sampled_from([{"reason": "the program is gone"}, {"reason": "stale"}, {}]),
    "waybill_evidence": st.sampled_from([{"source": "session"}, {"source": "listener"}, {"source": "x"}]),
    "spark.exception": st.sampled_from([None, [], {"message": "thrown\nat"}, {"message": 1}]),
    "spark_jobDetails": st.just({"jobId": 1}),
    "spark_properties": st.sampled_from([None, 7, {"properties": "spark.waybill.did"}])
    | SAYINGS.map(
        lambda said: {"properties": {f"spark.waybill.{key}": value for key, value in said.items()}}
    ),
}
DELTA_FILE = st.fixed_dictionaries(
    {"did": st.sampled_from(["d1", "d2"])},
    optional={
        "parentDid": MAYBE,
        "systemName": MAYBE,
        "dataSource": MAYBE,
        "filename": MAYBE,
        "transforms": st.lists(WORDS, max_size=2),
        "dataSink": MAYBE,
        "finalState": st.sampled_from(FinalState),
        "created": INSTANTS,
        "completed": INSTANTS,
        "annotations": ANNOTATIONS,
    },
)
PLAIN = st.fixed_dictionaries({}, optional=RUN_FACETS)
# Fewer with the facet than without: a run that has it once derives nothing.
FACETS = PLAIN | PLAIN | st.fixed_dictionaries({"waybill_deltaFile": DELTA_FILE}, optional=RUN_FACETS)

st.register_type_strategy(
    RunEvent,
    st.fixed_dictionaries(
        {
            "eventTime": INSTANTS,
            "eventType": st.sampled_from(
                ["START", "RUNNING", "OTHER", "COMPLETE", "ABORT", "FAIL", "made up"]
            ),
            "run": st.fixed_dictionaries(
                {"runId": st.sampled_from(["r1", "r2", "r3"])}, optional={"facets": FACETS}
            ),
            "job": st.fixed_dictionaries(
                {"namespace": st.sampled_from(["", "ns"]), "name": st.sampled_from(["a/job", "job"])}
            ),
            "producer": st.sampled_from(
                ["https://example.com/tests", "https://example.com/integration/spark"]
            ),
        },
        optional={"inputs": st.lists(DATASETS, max_size=2), "outputs": st.lists(DATASETS, max_size=2)},
    )
    .map(msgspec.json.encode)
    .map(decode_event),
)
