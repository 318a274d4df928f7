"""What is wrong with a node's cards. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from agent.core import cards
from agent.core.doctor.finding import Finding, Seen, ok, problem, warning
from agent.wire.facts import GpuFacts, PcieFacts, device_name

_GBPS_A_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of one lane each way, by PCIe generation (after encoding)."""
_CHECK = "gpu"


def findings(seen: Seen) -> Iterator[Finding]:
    gpus = seen.facts.gpus
    if gpus is None:
        return
    if not gpus:
        yield ok(_CHECK, "this node has no NVIDIA card")
        return
    told: set[int] = set()
    for gpu in gpus:
        card = cards.card_of(gpu.index)
        if gpu.problem is not None:
            yield problem(_CHECK, "gpu_unusable", f"GPU {device_name(gpu.index)} ({_name(gpu)}): {gpu.problem}")
        if card not in told:
            told.add(card)
            yield from _of_card(card, gpu)
    yield ok(_CHECK, f"driver {seen.facts.driver or 'of an unknown version'}: {_counted(gpus)}")
    yield from _switch(seen, gpus)
    yield from _domains(seen, gpus)


def _of_card(card: int, gpu: GpuFacts) -> Iterator[Finding]:
    name = f"GPU {card} ({_name(gpu)})"
    if gpu.pcie is not None and (said := slow_link(gpu.pcie)) is not None:
        yield warning(
            _CHECK,
            "pcie_slow",
            f"{name} {said}. Check the slot (wired fewer lanes, or an older generation), a riser, or the BIOS's PCIe "
            "setting",
            f"lspci -vv -s {gpu.bus_id}" if gpu.bus_id else "",
        )
    if gpu.ecc_uncorrected:
        yield problem(
            _CHECK,
            "ecc_uncorrected",
            f"{name} had {gpu.ecc_uncorrected} memory errors that ECC could not mend since its driver was loaded: what "
            "it computed may be wrong; drain the node and reset the card, and replace it when they come back",
            f"nvidia-smi -q -d ECC -i {card}",
        )
    if gpu.remap_pending:
        yield warning(
            _CHECK, "remap_pending", f"{name} has memory rows to replace, which its next reset does", "nvidia-smi -r"
        )
    if gpu.mig_pending is not None and gpu.mig_enabled is not None and gpu.mig_pending != gpu.mig_enabled:
        mode = "on" if gpu.mig_pending else "off"
        yield warning(_CHECK, "mig_pending", f"{name} turns MIG {mode} at its next reset", f"nvidia-smi -i {card} -r")


def slow_link(pcie: PcieFacts) -> str | None:
    """How a link falls short of what its card could do; None where it does not, or nobody knows."""
    if pcie.width is None or pcie.card_width is None:
        return None
    generation, card_generation = pcie.generation, pcie.card_generation
    lanes = pcie.width < pcie.card_width
    older = generation is not None and card_generation is not None and generation < card_generation
    if not lanes and not older:
        return None
    said = []
    if lanes:
        said.append(f"x{pcie.width} of its x{pcie.card_width} lanes")
    if older:
        said.append(f"generation {generation} of its {card_generation}")
    here, could = _rate(generation, pcie.width), _rate(card_generation, pcie.card_width)
    rates = f": {here:.1f} GB/s where it could have {could:.1f}" if here and could else ""
    return f"linked at {' and '.join(said)}{rates}"


def _rate(generation: int | None, width: int) -> float | None:
    lane = _GBPS_A_LANE.get(generation or 0)
    return lane * width if lane is not None else None


def _switch(seen: Seen, gpus: tuple[GpuFacts, ...]) -> Iterator[Finding]:
    """On a machine with NVSwitch CUDA starts only where its manager runs, at the driver's own version."""
    if not any(gpu.switched for gpu in gpus):
        return
    version, driver = seen.fabric_manager, seen.facts.driver
    if version is None:
        yield problem(
            "nvswitch",
            "no_fabric_manager",
            "the cards are joined by NVSwitch, and nvidia-fabricmanager is not there: CUDA will not start on them",
            f"sudo apt-get install nvidia-fabricmanager-{(driver or 'VERSION').split('.')[0]}",
        )
    elif version == "stopped":
        yield problem(
            "nvswitch",
            "fabric_manager_stopped",
            "nvidia-fabricmanager does not run: CUDA will not start on this node's cards",
            "sudo systemctl enable --now nvidia-fabricmanager",
        )
    elif driver is not None and version not in (driver, "unknown"):
        yield problem(
            "nvswitch",
            "fabric_manager_version",
            f"nvidia-fabricmanager is of version {version} and the driver of {driver}: they must be the same",
        )
    else:
        yield ok("nvswitch", f"nvidia-fabricmanager {version} runs")


def _domains(seen: Seen, gpus: tuple[GpuFacts, ...]) -> Iterator[Finding]:
    """NVLink over several machines."""
    named = [gpu for gpu in gpus if gpu.domain is not None]
    if not named:
        return
    waiting = sorted({cards.card_of(g.index) for g in named if g.domain and g.domain.state != "Completed"})
    if waiting:
        shown = ", ".join(map(str, waiting))
        yield warning(
            "nvlink domain", "domain_incomplete", f"GPUs {shown} have not joined their NVLink domain (state "
            f"{named[0].domain.state if named[0].domain else 'unknown'}): is the rack's fabric manager up?",
        )  # fmt: skip
    if not any(g.domain is not None and g.domain.cluster for g in named):
        return
    if seen.imex is None or seen.imex == "stopped":
        yield problem(
            "nvlink domain",
            "no_imex",
            "the cards are in an NVLink domain of several machines, and nvidia-imex does not run: no replica can span "
            "them",
            "sudo systemctl enable --now nvidia-imex",
        )
    elif seen.imex_channels is False:
        yield problem(
            "nvlink domain",
            "no_imex_channel",
            "nvidia-imex runs and there is no IMEX channel: no replica can span the domain's machines",
            "sudo modprobe nvidia NVreg_CreateImexChannel0=1",
        )


def _counted(gpus: tuple[GpuFacts, ...]) -> str:
    counts: dict[str, int] = {}
    for gpu in gpus:
        named = gpu.gpu_class or gpu.name or "unknown card"
        counts[named] = counts.get(named, 0) + 1
    return ", ".join(f"{count} × {named}" for named, count in sorted(counts.items()))


def _name(gpu: GpuFacts) -> str:
    return gpu.name or "unknown card"
