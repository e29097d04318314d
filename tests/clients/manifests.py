"""Validates a Kubernetes manifest strictly, with the schemas of the newest release, and prints its documents as JSON."""

import json
import sys

import kubernetes_validate
import yaml

with open(sys.argv[1], encoding="utf-8") as file:
    documents = list(yaml.safe_load_all(file))
for document in documents:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
json.dump(documents, sys.stdout)
