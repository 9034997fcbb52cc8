"""The agents: one file each, by the names the command line uses."""

from bcol.agents.base import Agent, Batch, Clock
from bcol.agents.bc import BC
from bcol.agents.bcol_sac import BCOLSAC
from bcol.agents.bcol_td3 import BCOLTD3
from bcol.agents.cdc import CDC
from bcol.agents.offline_sac import OfflineSAC
from bcol.agents.offline_td3 import OfflineTD3
from bcol.agents.td3_bc import TD3BC

AGENTS: dict[str, type[Agent]] = {
    agent.name: agent for agent in (BCOLSAC, BCOLTD3, OfflineSAC, OfflineTD3, BC, TD3BC, CDC)
}

__all__ = ["AGENTS", "BC", "BCOLSAC", "BCOLTD3", "CDC", "TD3BC", "Agent", "Batch", "Clock", "OfflineSAC", "OfflineTD3"]
