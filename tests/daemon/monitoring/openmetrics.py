"""Reads a scrape from standard input with the official OpenMetrics parser. Writes the families of
metrics as JSON: the type, unit, help and samples of each family. Fails if the scrape is no
OpenMetrics text."""

import json
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

families = {
    family.name: {
        "type": family.type,
        "unit": family.unit,
        "help": family.documentation,
        "samples": [[sample.name, sorted(sample.labels), sample.value] for sample in family.samples],
    }
    for family in text_string_to_metric_families(sys.stdin.read())
}
json.dump(families, sys.stdout)
