"""What nvidia-smi prints, made in its format: a machine with the cards, instances and faults that a test asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Instance:
    number: int
    profile: str
    memory_mib: int = 40448
    gpu_instance: int = 1


@dataclass(frozen=True)
class Card:
    bus: str = "00000000:18:00.0"
    uuid: str = "GPU-18"
    name: str = "NVIDIA H100 80GB HBM3"
    total: str = "81559 MiB"
    free: str = "81000 MiB"
    power: str = "70.12 W"
    utilization: str = "0 %"
    temperature: str = "33 C"
    width: str = "16x"
    generation: str = "5"
    ecc: str = "<volatile><sram_correctable>0</sram_correctable><dram_uncorrectable>0</dram_uncorrectable></volatile>"
    mig: str = "Disabled"
    pending: str = "Disabled"
    instances: Sequence[Instance] = ()
    processes: str = "<process_info><gpu_instance_id>N/A</gpu_instance_id><pid>4711</pid><type>C</type>" \
        "<process_name>python</process_name><used_memory>512 MiB</used_memory></process_info>"  # fmt: skip
    fabric: str = ""
    power_tag: str = "gpu_power_readings"
    more: str = ""

    def xml(self) -> str:
        instances = "".join(
            f"<mig_device><index>{i.number}</index><gpu_instance_id>{i.gpu_instance}</gpu_instance_id>"
            f"<compute_instance_id>0</compute_instance_id><fb_memory_usage><total>{i.memory_mib} MiB</total>"
            f"<used>1 MiB</used><free>{i.memory_mib - 1} MiB</free></fb_memory_usage></mig_device>"
            for i in self.instances
        )
        return f"""<gpu id="{self.bus}">
  <product_name>{self.name}</product_name>
  <mig_mode><current_mig>{self.mig}</current_mig><pending_mig>{self.pending}</pending_mig></mig_mode>
  <mig_devices>{instances or "None"}</mig_devices>
  <uuid>{self.uuid}</uuid>
  <pci><pci_bus_id>{self.bus}</pci_bus_id><pci_gpu_link_info>
    <pcie_gen><max_link_gen>{self.generation}</max_link_gen><current_link_gen>1</current_link_gen>
      <max_device_link_gen>5</max_device_link_gen></pcie_gen>
    <link_widths><max_link_width>16x</max_link_width><current_link_width>{self.width}</current_link_width></link_widths>
  </pci_gpu_link_info></pci>
  <fb_memory_usage><total>{self.total}</total><used>559 MiB</used><free>{self.free}</free></fb_memory_usage>
  <utilization><gpu_util>{self.utilization}</gpu_util></utilization>
  <ecc_errors>{self.ecc}</ecc_errors>
  <remapped_rows><remapped_row_pending>No</remapped_row_pending></remapped_rows>
  <temperature><gpu_temp>{self.temperature}</gpu_temp></temperature>
  <{self.power_tag}><power_draw>{self.power}</power_draw><current_power_limit>700.00 W</current_power_limit>
  </{self.power_tag}>
  {self.fabric}{self.more}
  <processes>{self.processes}</processes>
</gpu>"""


def query(*cards: Card, driver: str = "570.86.15") -> str:
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f"<timestamp>Sun Nov 29 12:00:00 2026</timestamp><driver_version>{driver}</driver_version>"
        f"<attached_gpus>{len(cards)}</attached_gpus>{''.join(card.xml() for card in cards)}</nvidia_smi_log>\n"
    )


def listing(*cards: Card) -> str:
    lines = []
    for number, card in enumerate(cards):
        lines.append(f"GPU {number}: {card.name} (UUID: {card.uuid})")
        for i in card.instances:
            lines.append(f"  MIG {i.profile:<11} Device {i.number:>2}: (UUID: MIG-{card.uuid[4:]}-{i.number})")
    return "\n".join(lines) + "\n"


PAIRED = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV4\tSYS\tSYS\tPIX\tSYS\t0-31\t0\t\tN/A\n"
    "GPU1\tNV4\t X \tSYS\tSYS\tPHB\tSYS\t0-31\t0\t\tN/A\n"
    "GPU2\tSYS\tSYS\t X \tNV4\tSYS\tPIX\t32-63\t1\t\tN/A\n"
    "GPU3\tSYS\tSYS\tNV4\t X \tSYS\tPIX\t32-63\t1\t\tN/A\n"
    "NIC0\tPIX\tPHB\tSYS\tSYS\t X \tSYS\n"
    "NIC1\tSYS\tSYS\tPIX\tPIX\tSYS\t X \n"
    "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
)
"""Four cards, bridged in pairs, each pair near an adapter of its own."""
