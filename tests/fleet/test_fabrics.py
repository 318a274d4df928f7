"""The cluster's fabrics, from what nodes say of their ports and cards."""

from __future__ import annotations

from agent.wire.facts import DomainFacts, FabricFacts, GpuFacts, NodeFacts, PortFacts
from fleet.core import fabrics
from fleet.core.fabrics import Fabrics
from fleet.core.world import NodeView


def port(
    name: str, manager: str | None = "sm1", kind: str = "infiniband", number: int = 1, **said: object
) -> PortFacts:
    fields = {"active": True, "rate_gbps": 200.0, "subnet_manager": manager, **said}
    return PortFacts(name, number, kind, **fields)  # type: ignore[arg-type]


def node(name: str, *ports: PortFacts, named: tuple[FabricFacts, ...] = (), **labels: str) -> NodeView:
    return NodeView(
        name, NodeFacts(rdma_ports=ports, fabrics=named), labels={f"llmgw.io/{k}": v for k, v in labels.items()}
    )


def told(found: Fabrics) -> dict[str, list[str]]:
    return {i.name: list(i.members) for i in found.islands}


def test_all_adapters_of_a_fabric_go_to_a_rank_with_their_rates() -> None:
    named = (FabricFacts("ib-a", ("mlx5_0", "mlx5_1:2")),)
    one = node("n1", port("mlx5_0"), port("mlx5_1", number=1, manager="sm9"), port("mlx5_1", number=2), named=named)
    found = fabrics.of([one])
    assert told(found) == {"ib-a": ["n1"], "infiniband sm9": ["n1"]}
    assert found.islands[0].link("n1").adapters == ("mlx5_0:1", "mlx5_1:2")
    assert found.islands[0].members["n1"].rate_gbps == 400


def test_a_second_port_without_a_cable_does_not_matter_where_the_adapter_is_named() -> None:
    named = (FabricFacts("ib-a", ("mlx5_0",)),)
    found = fabrics.of([node("n1", port("mlx5_0"), port("mlx5_0", number=2, active=False), named=named)])
    assert found.islands[0].link("n1").adapters == ("mlx5_0:1",)


def test_what_keeps_a_node_off_a_fabric_is_said() -> None:
    down = node("n1", port("mlx5_0", active=False), named=(FabricFacts("ib-a", ("mlx5_0",)),))
    absent = node("n2", port("mlx5_0"), named=(FabricFacts("ib-a", ("mlx5_7",)),))
    both = node("n3", port("mlx5_0", "sm1"), port("mlx5_1", "sm2"), named=(FabricFacts("ib-a", ("mlx5_0", "mlx5_1")),))
    lame = node("n4", port("mlx5_0", None, "roce", gid_index=None), named=(FabricFacts("r", ("mlx5_0",)),))
    found = fabrics.of([down, absent, both, lame])
    said = {name: reasons[0].sentence for name, reasons in found.off.items()}
    assert said["n1"] == "n1: it is off ib-a: mlx5_0:1 is down"
    assert said["n2"] == "n2: ib-a is said to be on mlx5_7, and there is no such adapter"
    assert "mlx5_0:1: infiniband sm1; mlx5_1:1: infiniband sm2" in said["n3"]
    assert said["n4"] == "n4: it is off r: mlx5_0:1 has no RoCE v2 address that is routed"
    assert told(found) == {"infiniband sm1": ["n2"]}


def test_two_under_one_name_are_two_and_one_under_two_names_is_one() -> None:
    a, b = (FabricFacts("ib-a", ("mlx5_0",)),), (FabricFacts("ib-b", ("mlx5_0",)),)
    found = fabrics.of(
        [
            node("n1", port("mlx5_0", "sm1"), named=a),
            node("n2", port("mlx5_0", "sm2"), named=a),
            node("n3", port("mlx5_0", "sm2"), named=b),
        ]
    )
    assert told(found) == {"ib-a (infiniband sm1)": ["n1"], "ib-a (infiniband sm2)": ["n2", "n3"]}
    sentences = [f.sentence for f in found.findings]
    assert any(s.startswith("2 fabrics that do not reach one another are named ib-a") for s in sentences)
    assert any("is called otherwise on some of its nodes: ib-b" in s for s in sentences)


def test_roce_that_nobody_named_reaches_nobody_that_is_known() -> None:
    assert fabrics.of([node(n, port("mlx5_0", None, "roce", gid_index=3)) for n in ("n1", "n2")]).islands == ()
    named = (FabricFacts("r", ("mlx5_0",)),)
    found = fabrics.of([node(n, port("mlx5_0", None, "roce", gid_index=3), named=named) for n in ("n1", "n2")])
    assert found.islands[0].link("n2").gid_index == 3
    assert told(found) == {"r": ["n1", "n2"]}


def test_a_node_is_in_a_domain_with_all_its_cards_or_not_at_all() -> None:
    def cards(*states: str, imex: bool | None = True, clique: tuple[int, ...] = (1, 1)) -> NodeFacts:
        gpus = tuple(
            GpuFacts(i, domain=DomainFacts(s, "c1", q)) for i, (s, q) in enumerate(zip(states, clique, strict=True))
        )
        return NodeFacts(gpus=gpus, imex=imex)

    found = fabrics.of(
        [
            NodeView("n1", cards("Completed", "Completed")),
            NodeView("n2", cards("Completed", "In Progress")),
            NodeView("n3", cards("Completed", "Completed", imex=None)),
            NodeView("n4", cards("Completed", "Completed", clique=(1, 2))),
        ]
    )
    assert told(found) == {"nvlink c1/1": ["n1"]}
    assert {name: r[0].code for name, r in found.off.items()} == {
        "n2": "nvlink_out",
        "n3": "imex",
        "n4": "nvlink_split",
    }
