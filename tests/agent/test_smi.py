"""What nvidia-smi says, in every dress: what it does not say is unknown, and never zero."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import smi
from agent.wire.facts import DomainFacts, GpuFacts, HolderFacts, NvLink, PcieFacts, device_name
from tests.agent.drivers import PAIRED, Card, Instance, listing, query


def one(card: Card) -> GpuFacts:
    said = smi.query(query(card), listing(card))
    assert said is not None
    (found,) = said.gpus
    return found


def test_a_card() -> None:
    found = one(Card())
    assert found == GpuFacts(
        index=0,
        uuid="GPU-18",
        name="NVIDIA H100 80GB HBM3",
        gpu_class="h100-80g",
        memory_bytes=81559 * 2**20,
        memory_free_bytes=81000 * 2**20,
        temperature_c=33,
        power_w=70.12,
        power_limit_w=700.0,
        utilization_percent=0.0,
        bus_id="0000:18:00.0",
        pcie=PcieFacts(5, 16, 5, 16),
        ecc_uncorrected=0,
        remap_pending=False,
        mig_enabled=False,
        mig_pending=False,
        holders=(HolderFacts(4711, 512 * 2**20),),
    )


ODD = ["N/A", "[N/A]", "[Not Supported]", "ERR!", "[Unknown Error]", "GPU is lost", "", "???"]


@pytest.mark.parametrize("odd", ODD)
def test_what_it_does_not_say_is_unknown(odd: str) -> None:
    found = one(Card(total=odd, free=odd, power=odd, utilization=odd, temperature=odd, width=odd, generation=odd))
    assert found.uuid == "GPU-18", "the rest is told"
    unknown = (
        found.memory_bytes, found.memory_free_bytes, found.power_w, found.utilization_percent, found.temperature_c,
        found.gpu_class,
    )  # fmt: skip
    assert unknown == (None,) * 6
    assert found.pcie == PcieFacts(None, None, 5, 16)


def test_processes_that_cannot_be_asked_for_are_unknown_and_none_is_none() -> None:
    assert one(Card(processes="N/A")).holders is None
    assert one(Card(processes="")).holders == ()


def test_other_drivers_and_locales() -> None:
    older = one(Card(power_tag="power_readings", ecc="<volatile><double_bit><total>3</total></double_bit></volatile>"))
    assert (older.power_w, older.ecc_uncorrected) == (70.12, 3)
    assert one(Card(power="70,12 W")).power_w == 70.12, "a decimal comma"
    newer = one(
        Card(
            power_tag="module_power_readings",
            more="<gpu_power_readings><average_power_draw>N/A</average_power_draw>"
            "<instant_power_draw>81.5 W</instant_power_draw></gpu_power_readings><new_field>7</new_field>",
            ecc="<volatile><sram_uncorrectable_parity>1</sram_uncorrectable_parity>"
            "<sram_uncorrectable_secded>1</sram_uncorrectable_secded><dram_uncorrectable>2</dram_uncorrectable></volatile>",
        )
    )
    assert (newer.power_w, newer.ecc_uncorrected) == (81.5, 4)


def test_cards_are_counted_along_the_bus() -> None:
    far, near = Card(bus="00000000:81:00.0", uuid="GPU-81"), Card()
    said = smi.query(query(far, near))
    assert said is not None
    assert [(g.index, g.uuid) for g in said.gpus] == [(0, "GPU-18"), (1, "GPU-81")]
    assert said.driver == "570.86.15"


def test_a_card_that_is_cut_is_told_as_its_instances() -> None:
    whole = Card()
    cut = Card(
        bus="00000000:81:00.0",
        uuid="GPU-81",
        mig="Enabled",
        pending="Enabled",
        utilization="N/A",
        instances=[Instance(0, "3g.40gb"), Instance(2, "1g.10gb+me", 9728, gpu_instance=5)],
        processes="<process_info><gpu_instance_id>5</gpu_instance_id><pid>12</pid><used_memory>1 MiB</used_memory>"
        "</process_info>",
    )
    said = smi.query(query(whole, cut), listing(whole, cut))
    assert said is not None
    first, big, small = said.gpus
    assert first.index == 0
    assert (big.index, device_name(big.index), big.gpu_class) == (1100, "1/mig0", "h100-80g-mig-3g.40gb")
    assert (small.index, device_name(small.index), small.gpu_class) == (1102, "1/mig2", "h100-80g-mig-1g.10gb-me")
    assert (big.uuid, small.uuid) == ("MIG-81-0", "MIG-81-2")
    assert (big.memory_bytes, small.memory_bytes) == (40448 * 2**20, 9728 * 2**20)
    assert big.temperature_c == small.temperature_c == 33, "heat is the card's"
    assert small.utilization_percent is None
    assert (big.holders, small.holders) == ((), (HolderFacts(12, 2**20),))
    assert big.problem is None


def test_a_card_that_is_to_be_cut_and_is_not_takes_nothing() -> None:
    found = one(Card(mig="Enabled", pending="Enabled"))
    assert found.problem is not None
    assert "mig -cgi" in found.problem


def test_instances_without_ids_take_nothing() -> None:
    cut = Card(mig="Enabled", pending="Enabled", instances=[Instance(0, "3g.40gb")])
    said = smi.query(query(cut))
    assert said is not None
    assert (said.gpus[0].uuid, said.gpus[0].gpu_class) == (None, None)
    assert said.gpus[0].problem is not None


def test_nvlink_domains() -> None:
    joined = "<fabric><state>Completed</state><status>Success</status><cliqueId>32766</cliqueId>" \
        "<clusterUuid>a1b2c3d4-0000-1111-2222-333344445555</clusterUuid></fabric>"  # fmt: skip
    assert one(Card(fabric=joined)).domain == DomainFacts("Completed", "a1b2c3d4-0000-1111-2222-333344445555", 32766)
    alone = joined.replace("a1b2c3d4-0000-1111-2222-333344445555", "00000000-0000-0000-0000-000000000000")
    assert one(Card(fabric=alone)).domain == DomainFacts("Completed")
    assert one(Card(fabric="<fabric><state>In Progress</state></fabric>")).domain == DomainFacts("In Progress")
    assert one(Card(fabric="<fabric><state>N/A</state></fabric>")).domain is None


def test_the_matrix() -> None:
    found = smi.topology(PAIRED)
    assert found[0] == smi.Near((NvLink(1, 4),), ("mlx5_0",), 0)
    assert found[1] == smi.Near((NvLink(0, 4),), ("mlx5_0",), 0)
    assert found[3] == smi.Near((NvLink(2, 4),), ("mlx5_1",), 1)
    assert smi.topology("NVIDIA-SMI has failed because it couldn't communicate with the driver.") == {}


def test_no_document() -> None:
    for text in ("", "NVIDIA-SMI has failed", "<html/>", query(Card())[:-40], "<nvidia_smi_log>"):
        assert smi.query(text) is None
    empty = smi.query(query())
    assert empty is not None
    assert empty.gpus == ()


WHOLE = query(Card(), Card(bus="00000000:81:00.0", mig="Enabled", instances=[Instance(0, "3g.40gb")]))


@given(st.data())
def test_no_text_breaks_it(data: st.DataObject) -> None:
    """Cut anywhere, with anything put anywhere: facts or nothing, no exception, no figure out of thin air."""
    at = data.draw(st.integers(0, len(WHOLE)))
    junk = data.draw(st.text(max_size=20))
    for text in (WHOLE[:at], WHOLE[:at] + junk + WHOLE[at:], junk):
        said = smi.query(text, junk)
        for gpu in said.gpus if said is not None else ():
            assert gpu.memory_bytes is None or gpu.memory_bytes >= 0
    at = data.draw(st.integers(0, len(PAIRED)))
    smi.topology(PAIRED[:at] + junk + PAIRED[at:])


def test_a_thousand_processes() -> None:
    many = "".join(f"<process_info><pid>{n}</pid><used_memory>N/A</used_memory></process_info>" for n in range(1000))
    found = one(replace(Card(), processes=many))
    assert found.holders is not None
    assert len(found.holders) == 1000
    assert found.holders[0].memory_bytes is None


def test_both_forms_of_an_instances_id_are_kept_as_they_are() -> None:
    """Drivers before 470 named it by its card and its place there; CUDA wants it just so."""
    card = Card(mig="Enabled", instances=[Instance(0, "3g.40gb"), Instance(1, "1g.10gb+me", 9728, gpu_instance=9)])
    old = f"MIG-{card.uuid}/9/0"
    told = listing(card).replace(f"MIG-{card.uuid[4:]}-1", old)
    said = smi.query(query(card), told)
    assert said is not None
    assert [(g.index, g.uuid) for g in said.gpus] == [(1000, f"MIG-{card.uuid[4:]}-0"), (1001, old)]
