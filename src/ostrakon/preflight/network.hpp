// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/preflight/check.hpp>
#include <string>
#include <vector>

// Which network MPI and NCCL really use. The system counts what each network interface sends; what
// goes past TCP, by a port for RDMA or in shared memory, is not counted there. So messages of a
// known size tell.

namespace ostrakon::preflight {

/// The ports of devices for RDMA as the system lists them below `sys`: {"port mlx5_0/1", "ACTIVE,
/// 200 Gb/sec (4X HDR)"}, and devices of HPE's Slingshot: {"device cxi0", "there"}.
Facts fast_ports(const std::string& sys = "/sys");

/// The bytes that each interface has sent, from the text of /proc/net/dev.
std::map<std::string, std::int64_t> sent_by_interface(const std::string& text);

/// The network that NCCL says it uses, in the text of its debug output: "IB", "Socket" or the name
/// of a plugin; "" if it does not say.
std::string nccl_network(const std::string& text);

/// Pairs of ranks, either of hosts that differ or of one host: the other rank of each rank's pair,
/// -1 for ranks without one.
std::vector<int> pairs_of(const std::vector<std::string>& hosts, bool across);

/// Has NCCL write which network it uses, for the check below, before it starts. Does nothing where
/// NCCL_DEBUG is set, and in builds without NCCL.
void ask_nccl();

/// Checks that all hosts have the same ports, that messages to other hosts do not go by TCP
/// although there is a port, and that messages inside a host do not go by TCP. `world` must outlive
/// it.
Check network(comm::Communicator& world);

}  // namespace ostrakon::preflight
