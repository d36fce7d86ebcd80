"""Checks the Helm chart without helm and without a cluster: `PYTHONPATH=tests python -m deploy CHART FOLDER`.

Helm's own library lints the chart and renders it with several sets of values into FOLDER. Objects of Kubernetes are validated
against its schemas; of custom resources, whose schemas are not at hand, what they refer to must be there.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python as helm
import kubernetes_validate
import yaml

KUBERNETES = "1.31"
CUSTOM = ("keda.sh/", "monitoring.coreos.com/")
VALUES: dict[str, dict[str, Any]] = {
    "as-shipped": {},
    "everything": {
        "serviceMonitor": {"enabled": True},
        "autoscaling": {"enabled": True},
        "env": {"LOG_LEVEL": "debug"},
        "podAnnotations": {"a": "b"},
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
    },
    "least": {"migration": {"enabled": False}, "disruptionBudget": {"enabled": False}},
}


def main(chart: Path, folder: Path) -> int:
    """Print what is wrong; returns the exit code."""
    problems = [str(error) for error in helm.lint(chart, strict=True)["errors"]]
    with helm.Chart.load(chart) as loaded:
        for name, values in VALUES.items():
            rendered = loaded.render(values, name="loyalty", namespace="shop")
            (folder / f"{name}.yaml").write_text("\n---\n".join(rendered.values()))
            objects = [each for text in rendered.values() for each in yaml.safe_load_all(text) if each]
            problems += [f"{name}: {problem}" for problem in (*_invalid(objects), *_dangling(objects))]
            sys.stdout.write(f"chart rendered, values {name}: {len(objects)} objects\n")
    sys.stdout.write("".join(f"{problem}\n" for problem in problems))
    return 1 if problems else 0


def _invalid(objects: list[dict[str, Any]]) -> Iterator[str]:
    for each in objects:
        if each["apiVersion"].startswith(CUSTOM):
            continue
        try:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.InvalidSchemaError) as error:
            yield f"{each['kind']}: {error}"


def _dangling(objects: list[dict[str, Any]]) -> Iterator[str]:
    """Yield references to objects, labels and ports that are not there."""
    by_kind = {each["kind"]: each for each in objects}
    names = {(each["kind"], each["metadata"]["name"]) for each in objects}
    deployment, service = by_kind["Deployment"], by_kind["Service"]
    pod = deployment["spec"]["template"]
    wanted = [
        ("ConfigMap", volume["configMap"]["name"])
        for volume in pod["spec"]["volumes"]
        if "configMap" in volume
    ]
    if scaled := by_kind.get("ScaledObject"):
        wanted.append(("Deployment", scaled["spec"]["scaleTargetRef"]["name"]))
        wanted += [
            ("TriggerAuthentication", each["authenticationRef"]["name"])
            for each in scaled["spec"]["triggers"]
        ]
    yield from (f"no {kind} {name}" for kind, name in wanted if (kind, name) not in names)
    selected = [
        ("Deployment", deployment["spec"]["selector"]["matchLabels"], pod),
        ("Service", service["spec"]["selector"], pod),
    ]
    if budget := by_kind.get("PodDisruptionBudget"):
        selected.append(("PodDisruptionBudget", budget["spec"]["selector"]["matchLabels"], pod))
    if monitor := by_kind.get("ServiceMonitor"):
        selected.append(("ServiceMonitor", monitor["spec"]["selector"]["matchLabels"], service))
        ports = {port["name"] for port in service["spec"]["ports"]}
        yield from (
            f"no port {each['port']}" for each in monitor["spec"]["endpoints"] if each["port"] not in ports
        )
    yield from (
        f"{kind} selects nothing by {labels}"
        for kind, labels, target in selected
        if not labels.items() <= target["metadata"].get("labels", {}).items()
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
