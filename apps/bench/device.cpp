// SPDX-License-Identifier: Apache-2.0
// First measurements on a device, in minutes: rates of copies, launches, products and
// communication, next to the vendor's numbers.
#include <algorithm>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/device/api.hpp>

#include "bench.hpp"

#if OSTRAKON_HAS_DEVICE
#include <ostrakon/base/process.hpp>
#include <ostrakon/comm/mpi_transport.hpp>
#include <ostrakon/comm/nccl.hpp>
#include <ostrakon/device/memory.hpp>
#include <ostrakon/device/stream.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/runtime/own_product_workspace.hpp>
#include <ostrakon/trainer/devices.hpp>
#endif

namespace ostrakon::bench {

#if OSTRAKON_HAS_DEVICE

namespace {

constexpr std::int64_t array_bytes = std::int64_t{64} << 20;

template <class T>
View<T*> elements(const device::DeviceBytes& memory, std::int64_t count) {
  return {reinterpret_cast<T*>(memory.data()), count};
}

/// One rank's device, streams and arrays.
struct Bench {
  comm::Communicator& world;
  double budget;
  Table& table;
  device::Stream stream, other;
  Exec exec{stream.handle()};

  void row(const std::string& what, double seconds, nlohmann::ordered_json gigabytes,
           nlohmann::ordered_json gigaflops) {
    table.row({what, seconds, std::move(gigabytes), std::move(gigaflops)});
  }

  double seconds_of(const std::function<void()>& work) {
    return measure(world, budget, {work})[0].median;
  }

  void copies() {
    const device::DeviceBytes a(array_bytes), b(array_bytes);
    const device::PinnedBytes host(array_bytes), back(array_bytes);
    std::fill_n(host.data(), array_bytes, std::byte{0});
    const auto bytes = static_cast<std::size_t>(array_bytes);
    const auto show = [&](const char* what, double moved, const std::function<void()>& work) {
      const double seconds = seconds_of(work);
      row(what, seconds, moved * static_cast<double>(array_bytes) / seconds * 1e-9, nullptr);
    };
    show("copy to the device", 1, [&] {
      device::copy_to_device(stream.handle(), host.data(), a.data(), bytes);
      device::wait_for(stream.handle());
    });
    show("copy to the host", 1, [&] {
      device::copy_to_host(stream.handle(), a.data(), back.data(), bytes);
      device::wait_for(stream.handle());
    });
    show("both at once", 2, [&] {
      device::copy_to_device(stream.handle(), host.data(), a.data(), bytes);
      device::copy_to_host(other.handle(), b.data(), back.data(), bytes);
      device::wait_for(stream.handle());
      device::wait_for(other.handle());
    });
    show("copy on the device", 2, [&] {
      device::copy_on_device(stream.handle(), a.data(), b.data(), bytes);
      device::wait_for(stream.handle());
    });
    const std::int64_t count = array_bytes / 4;
    show("kernel: fp32 to bf16", 1.5, [&] {
      math::convert<float, bf16, OnDevice>(exec, elements<const float>(a, count),
                                           elements<bf16>(b, count));
      device::wait_for(stream.handle());
    });
  }

  void launches() {
    const device::DeviceBytes few(4096);
    constexpr int calls = 500;
    const auto launch_all = [&] {
      for (int i = 0; i < calls; ++i) math::fill(exec, elements<float>(few, 64), 0.0F);
      device::wait_for(stream.handle());
    };
    row("launch of a kernel, of many", seconds_of(launch_all) / calls, nullptr, nullptr);
    row("kernel and waiting for it", seconds_of([&] {
          math::fill(exec, elements<float>(few, 64), 0.0F);
          device::wait_for(stream.handle());
        }),
        nullptr, nullptr);
    device::Event event;
    const Exec on_other(other.handle());
    row("kernel on one stream behind an event of another", seconds_of([&] {
          math::fill(exec, elements<float>(few, 64), 0.0F);
          event.record(stream.handle());
          event.delay(other.handle());
          math::fill(on_other, elements<float>(few, 64), 0.0F);
          device::wait_for(other.handle());
        }),
        nullptr, nullptr);
  }

  template <class T>
  void product(const char* what, std::int64_t n) {
    const std::int64_t bytes = n * n * static_cast<std::int64_t>(sizeof(T));
    const device::DeviceBytes a(bytes), b(bytes), c(bytes);
    const runtime::OwnProductWorkspace workspace;
    for (const device::DeviceBytes* one : {&a, &b})
      math::fill_normal<T>(exec, elements<T>(*one, n * n), 1, 0, 1.0);
    const double seconds = seconds_of([&] {
      math::gemm<T>(exec, math::Transpose::no, math::Transpose::yes, 1.0F,
                    elements<const T>(a, n * n).matrix(n, n),
                    elements<const T>(b, n * n).matrix(n, n), 0.0F,
                    elements<T>(c, n * n).matrix(n, n));
      device::wait_for(stream.handle());
    });
    const auto size = static_cast<double>(n);
    row(text(what, " product of ", n, " x ", n, " x ", n), seconds, nullptr,
        2.0 * size * size * size / seconds * 1e-9);
  }

  /// Measures the bytes that a rank sends per second, and the ordered sum with it.
  void collectives(comm::TransportKind kind, comm::Communicator& group) {
    const std::int64_t ranks = group.size();
    const std::int64_t shard = array_bytes / 4 / ranks / 64 * 64;
    const device::DeviceBytes full(shard * ranks * 4), staging(shard * ranks * 4), part(shard * 4);
    math::fill(exec, elements<float>(full, shard * ranks), 1.0F);
    const double sent = static_cast<double>(shard * 4 * (ranks - 1));
    const auto show = [&](const char* what, const std::function<void()>& work) {
      const double seconds = seconds_of(work);
      row(text(what, " by ", name_in(comm::transport_names, kind)), seconds, sent / seconds * 1e-9,
          nullptr);
    };
    show("all-gather of 64 MiB", [&] {
      group.all_gather<float, OnDevice>(exec, elements<const float>(part, shard),
                                        elements<float>(full, shard * ranks));
      device::wait_for(stream.handle());
    });
    show("ordered reduce-scatter of 64 MiB", [&] {
      group.reduce_scatter<float, OnDevice>(exec, elements<const float>(full, shard * ranks),
                                            elements<float>(staging, shard * ranks),
                                            elements<float>(part, shard));
      device::wait_for(stream.handle());
    });
  }
};

}  // namespace

void run_device(comm::Communicator& world, const Options& options) {
  const double budget = options.seconds_or(0.3);
  const train::TransportFacts facts = train::transport_facts(world);
  const device::MemoryInfo memory = device::memory_info();
  if (world.rank() == 0 && !options.json) {
    std::cout << "device " << device::identity() << " of host " << host_name() << ": "
              << format_bytes(memory.free) << " of " << format_bytes(memory.total) << " free\n"
              << "products by " << math::gemm_kernel() << "\n"
              << "MPI is " << (facts.mpi_is_aware ? "" : "not ") << "device-aware, as it says; "
#if defined(OSTRAKON_HAVE_NCCL)
              << "NCCL " << comm::nccl_version()
#else
              << "no NCCL in this build"
#endif
              << (facts.shared.empty() ? "" : "; " + facts.shared) << "\n\n";
  }
  Table table("device", world, options,
              {{"what", "what", Format::text, 48},
               {"time", "seconds", Format::seconds, 10},
               {"GB/s", "gigabytes_per_second", Format::ratio, 9},
               {"GFLOP/s", "gigaflops", Format::number, 10}});
  Bench bench{world, budget, table, device::Stream(), device::Stream(device::Priority::high)};
  bench.copies();
  bench.launches();
#if defined(OSTRAKON_FAKE_DEVICE)
  constexpr std::int64_t size = 256;  // a core of the host multiplies
#else
  constexpr std::int64_t size = 8192;
#endif
  bench.product<float>("fp32", size);
  bench.product<bf16>("bf16", size);
  if (world.size() == 1) return;
#if defined(OSTRAKON_HAVE_NCCL)
  if (facts.shared.empty()) {
    const std::int64_t before = device::memory_info().free;
    constexpr double limit = 300.0;  // seconds
    auto nccl = std::make_unique<comm::NcclCommunicator>(world, "bench", limit);
    comm::Communicator group = comm::Communicator::duplicate(world.mpi());
    group.set_transport(
        std::make_unique<comm::NcclTransport>(std::move(nccl), group.rank(), nullptr));
    bench.collectives(comm::TransportKind::nccl, group);
    if (world.rank() == 0 && !options.json)
      std::cout << "  (NCCL took " << format_bytes(before - device::memory_info().free)
                << " of device memory for one communicator)\n";
  }
#endif
  for (const bool staged : {false, true}) {
    if (!staged && !facts.mpi_is_aware) continue;
    comm::Communicator group = comm::Communicator::duplicate(world.mpi());
    group.set_transport(std::make_unique<comm::MpiTransport>(group.mpi(), staged));
    bench.collectives(staged ? comm::TransportKind::mpi_staged : comm::TransportKind::mpi_direct,
                      group);
  }
}

#else

void run_device(comm::Communicator& world, const Options&) {
  world.run_collectively(
      [] { throw Error("device: this build computes on the host; expected one for CUDA or HIP"); });
}

#endif

}  // namespace ostrakon::bench
