"""Reads requests of OTLP with the messages of OpenTelemetry: a line of JSON each on stdin, `{"path", "body"}` with the body in base64, and writes each as a line of JSON. A field that OpenTelemetry doesn't know is an error."""

import base64
import json
import sys

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {
    "/v1/logs": ExportLogsServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/traces": ExportTraceServiceRequest,
}


def check(message):
    unknown = [field.field_number for field in UnknownFieldSet(message)]
    if unknown:
        raise ValueError(f"{message.DESCRIPTOR.full_name} has no fields {unknown}")
    for field, value in message.ListFields():
        if field.message_type:
            for inner in [value] if hasattr(value, "ListFields") else value:
                check(inner)


for line in sys.stdin:
    request = json.loads(line)
    kind = KINDS[request["path"]]
    if "json" in request:
        # Of a file: the names have to be known.
        message = ParseDict(request["json"], kind())
    else:
        message = kind.FromString(base64.b64decode(request["body"]))
    check(message)
    print(json.dumps(MessageToDict(message)))
