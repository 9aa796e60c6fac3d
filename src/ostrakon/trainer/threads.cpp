// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/threads.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/math/fp8/product.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/gemm_facts.hpp>

namespace ostrakon::train {

int matrix_threads(std::int64_t wanted, int of_kernels, comm::Communicator& world) {
  double threads = wanted == config::automatic_threads ? of_kernels : static_cast<double>(wanted);
  world.all_reduce_min(&threads, 1);
  return static_cast<int>(threads);
}

int set_matrix_threads(comm::Communicator& world, std::int64_t wanted) {
  const int threads = matrix_threads(wanted, host_threads(), world);
  math::set_gemm_threads(threads);
  return threads;
}

int set_matrix_threads(const config::Settings& settings, comm::Communicator& world) {
  return set_matrix_threads(world, settings.runtime.threads);
}

std::string threads_line(int of_kernels, int of_matrices, int cores) {
  if (has_device) return "";
  const int has = std::max(cores, 1);
  std::string line = text("  threads of a rank      ", of_kernels, " for kernels, ", of_matrices,
                          " for matrix products\n");
  if (std::max(of_kernels, of_matrices) > has)
    line += text("                         more than its ", has, has == 1 ? " core" : " cores",
                 of_kernels > has ? text(": slow; set OMP_NUM_THREADS=", has)
                                  : text(": slow; set runtime.threads to ", has, " or auto"),
                 ", or give ranks more cores\n");
  return line;
}

void require_stream_threads(const StreamsFacts& facts, const std::string& setting,
                            const std::string& expected) {
  // On a device every action calls Kokkos, which threads of streams may not do.
  require(!facts.computes_on_device, setting,
          ": this build computes on a device, whose streams are begun from one thread; expected ",
          expected);
  require(facts.threads_may_call_mpi, setting,
          ": this MPI lets only one thread of a rank call it; expected ", expected,
          ", or an MPI with MPI_THREAD_MULTIPLE");
}

void require_subnormals(Subnormals subnormals, const std::string& setting,
                        const std::string& expected) {
  require(subnormals == Subnormals::keep || math::kernels_can_flush, setting,
          has_device ? ": this build computes on a device, which keeps subnormal numbers"
                     : ": threads of this kind of processor can't flush subnormal numbers",
          "; expected ", expected);
}

runtime::Streams streams_for(config::StreamsChoice choice, const StreamsFacts& facts) {
  using Choice = config::StreamsChoice;
  if (choice == Choice::in_plan_order) return runtime::Streams::in_plan_order;
  if (choice == Choice::threads) {
    require_stream_threads(facts, "runtime.streams = threads", "inline or auto");
    return runtime::Streams::threads;
  }
  if (facts.computes_on_device)
    return facts.threads_may_call_mpi ? runtime::Streams::device : runtime::Streams::in_plan_order;
  const bool pays = facts.threads_may_call_mpi && facts.has_other_streams &&
                    facts.cores >= facts.compute_threads + facts.busy_streams;
  return pays ? runtime::Streams::threads : runtime::Streams::in_plan_order;
}

runtime::Streams choose_streams(const config::Settings& settings, mesh::Mesh& mesh) {
  StreamsFacts facts;
  facts.computes_on_device = has_device;
  facts.threads_may_call_mpi = comm::Communicator::threads_may_call();
  facts.has_other_streams = mesh.world().size() > 1 ||
                            settings.parallel.offload != plan::Offload::none ||
                            settings.parallel.offload_activations;
  facts.cores = mesh.cores();
  if (settings.pipeline > 1) facts.busy_streams += 2;  // sends and receives
  facts.compute_threads = std::max(host_threads(), static_cast<int>(settings.runtime.threads));
  runtime::Streams mine = runtime::Streams::in_plan_order;
  mesh.world().run_collectively([&] { mine = streams_for(settings.runtime.streams, facts); });
  // All ranks decide alike: with different orders of collectives they would deadlock.
  double overlaps = mine == runtime::Streams::in_plan_order ? 0.0 : 1.0;
  mesh.world().all_reduce_min(&overlaps, 1);
  return overlaps > 0.0 ? mine : runtime::Streams::in_plan_order;
}

namespace {

/// Names those instruction sets enabled by -march that change sums in loops.
std::string compiled_instructions() {
  std::string all = "base";
#if defined(__FMA__)
  all += " FMA";
#endif
#if defined(__AVX2__)
  all += " AVX2";
#endif
#if defined(__AVX512F__)
  all += " AVX-512";
#endif
#if defined(__AVX512BF16__)
  all += " bf16";
#endif
#if defined(__AVX512FP16__)
  all += " fp16";
#endif
#if defined(__ARM_FEATURE_SVE)
  all += " SVE";
#endif
  return all;
}

}  // namespace

Facts kernel_facts(const KernelUse& use, int matrix_threads) {
  Facts facts = math::gemm_facts(use.dtype);
  if (math::is_8bit(use.products))
    facts.push_back(
        {text("kernel of ", math::name(use.products), " products"), math::fp8_kernel(use.dtype)});
  facts.push_back({"number of threads in matrix products", std::to_string(matrix_threads)});
  facts.push_back({"Kokkos", text(KOKKOS_VERSION, " ", Exec::name())});
  facts.push_back({"number of threads of kernels", std::to_string(host_threads())});
  facts.push_back({"subnormal numbers", name_in(subnormals_names, use.subnormals)});
  facts.push_back({"build", build()});
  facts.push_back({"instruction set compiled for", compiled_instructions()});
  for (const Fact& digest : math::gemm_digests(use.dtype)) facts.push_back(digest);
  return facts;
}

Facts kernel_facts(const config::Settings& settings, int matrix_threads) {
  const KernelUse use = {settings.precision.gather, settings.precision.products.dtype,
                         settings.runtime.subnormals};
  return kernel_facts(use, matrix_threads);
}

}  // namespace ostrakon::train
