// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/devices.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/comm/mpi_transport.hpp>
#include <ostrakon/comm/nccl.hpp>
#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/memory.hpp>
#endif

namespace ostrakon::train {

using comm::TransportKind;
using config::TransportChoice;

comm::TransportKind transport_for(TransportChoice choice, const TransportFacts& facts) {
  const std::string setting = text("runtime.transport = ", name(choice));
  if (!facts.has_device) {
    require(choice == TransportChoice::automatic, setting,
            ": this build computes on the host; expected auto");
    return TransportKind::mpi_staged;
  }
  const bool adds_16_bits = facts.adds && *facts.adds != DType::fp32;
  switch (choice) {
    case TransportChoice::nccl:
      require(facts.has_nccl, setting,
              ": this build has no NCCL; expected auto, mpi_direct or mpi_staged");
      require(facts.shared.empty() || facts.nccl_shares, setting, ": ", facts.shared,
              ", and NCCL needs one for each rank; expected auto, mpi_direct or mpi_staged, or as "
              "many ranks on a host as it has devices, or NCCL 2.30 or later with "
              "NCCL_MULTI_RANK_GPU_ENABLE=1 in the environment of all ranks");
      require(facts.shared.empty() || facts.stages == 1, setting, ": ", facts.shared,
              ", where the messages of parallel.pipeline = ", facts.stages,
              " by NCCL were seen to hang; expected mpi_staged, or a device for each rank");
      return TransportKind::nccl;
    case TransportChoice::mpi_direct:
      require(!adds_16_bits, setting, " with parallel.reduction = library and precision.reduce = ",
              name(facts.adds.value_or(DType::fp32)),
              ": MPI adds no 16-bit floats in device memory; expected auto, nccl or mpi_staged, or "
              "precision.reduce = fp32");
      return TransportKind::mpi_direct;
    case TransportChoice::mpi_staged:
      return TransportKind::mpi_staged;
    case TransportChoice::automatic:
      break;
  }
  if (facts.has_nccl && facts.shared.empty()) return TransportKind::nccl;
  return facts.mpi_is_aware && !adds_16_bits ? TransportKind::mpi_direct
                                             : TransportKind::mpi_staged;
}

void require_communicators(config::CommunicatorsChoice choice, TransportKind transport,
                           bool has_device) {
  if (choice == config::CommunicatorsChoice::per_stream) return;
  const std::string setting = text("runtime.communicators = ", name(choice));
  require(has_device, setting, ": this build computes on the host; expected per_stream");
  require(transport == TransportKind::nccl, setting, ": what moves device memory is ",
          name_in(comm::transport_names, transport),
          ", which has no communicators of NCCL; expected per_stream, or runtime.transport = nccl");
}

std::string shared_device(const std::vector<std::string>& devices) {
  std::map<std::string, std::size_t> first;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const auto [found, is_new] = first.try_emplace(devices[rank], rank);
    if (!is_new) return text("ranks ", found->second, " and ", rank, " share ", devices[rank]);
  }
  return "";
}

std::string device_name() {
#if OSTRAKON_HAS_DEVICE
  return text("device ", device::identity(), " of host ", host_name());
#else
  return "";
#endif
}

comm::Communicator ranks_of_device(comm::Communicator& ranks) {
  std::string mine;
  ranks.run_collectively([&] { mine = device_name(); });
  const std::vector<std::string> all = ranks.gather_texts(mine);
  const auto first = std::find(all.begin(), all.end(), mine) - all.begin();
  return comm::Communicator::split(ranks.mpi(), static_cast<int>(first));
}

TransportFacts transport_facts([[maybe_unused]] comm::Communicator& world) {
  TransportFacts facts;
  facts.has_device = has_device;
#if defined(OSTRAKON_HAVE_NCCL)
  facts.has_nccl = true;
  double shares = comm::nccl_shares_devices() ? 1.0 : 0.0;
  world.all_reduce_min(&shares, 1);
  facts.nccl_shares = shares > 0.0;
#endif
#if OSTRAKON_HAS_DEVICE
  std::string mine;
  world.run_collectively([&] { mine = device_name(); });
  facts.shared = shared_device(world.gather_texts(mine));
  double aware = comm::mpi_is_device_aware() ? 1.0 : 0.0;
  world.all_reduce_min(&aware, 1);
  facts.mpi_is_aware = aware > 0.0;
#endif
  return facts;
}

void set_device_transport([[maybe_unused]] comm::Communicator& group) {
#if OSTRAKON_HAS_DEVICE
  if (group.size() == 1) return;
  const TransportKind kind = transport_for(TransportChoice::automatic, transport_facts(group));
#if defined(OSTRAKON_HAVE_NCCL)
  if (kind == TransportKind::nccl) {
    constexpr double limit = 300.0;  // seconds
    auto nccl = std::make_shared<comm::NcclCommunicator>(group, "ostrakon", limit);
    auto transport = std::make_unique<comm::NcclTransport>(std::move(nccl), group.rank(), nullptr);
    transport->connect();
    group.set_transport(std::move(transport));
    return;
  }
#endif
  group.set_transport(
      std::make_unique<comm::MpiTransport>(group.mpi(), kind == TransportKind::mpi_staged));
#endif
}

ChosenTransport choose_transport(const config::Settings& settings, mesh::Mesh& mesh) {
  TransportFacts facts = transport_facts(mesh.world());
  facts.stages = settings.pipeline;
  if (settings.parallel.summation == plan::Summation::library)
    facts.adds = settings.parallel.reduce;
  TransportKind kind = TransportKind::mpi_staged;
  mesh.world().run_collectively([&] {
    kind = transport_for(settings.runtime.transport, facts);
    require_communicators(settings.runtime.communicators, kind, facts.has_device);
  });
  return {kind, facts.shared};
}

}  // namespace ostrakon::train
