// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/run_description.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/shared_memory.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/huge_pages.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/comm/agreement.hpp>
#include <ostrakon/comm/transport.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/value.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/gemm_facts.hpp>
#include <ostrakon/plan/ir/levels.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <ostrakon/plan/report/report.hpp>
#include <ostrakon/plan/report/report_json.hpp>
#include <ostrakon/plan/report/report_text.hpp>
#include <ostrakon/run/ranks.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/trainer/audit/audit.hpp>
#include <ostrakon/trainer/threads.hpp>

namespace ostrakon::train {
namespace {

using plan::Purpose;

config::OnRanks on_ranks(const Trainer& trainer, const mesh::Mesh& mesh) {
  const plan::Grid& grid = trainer.program(Purpose::train).plan.grid;
  return {grid.shard(), plan::may_have_levels(grid, mesh.ranks_per_node())};
}

std::string describe_libraries() {
  return text("Ostrakon ", version(), ", Kokkos ", KOKKOS_VERSION / 10000, ".",
              KOKKOS_VERSION / 100 % 100, ".", KOKKOS_VERSION % 100, " ", Exec::name(),
              ", matrix products: ", math::gemm_kernel(), "\n\n");
}

/// Describes the leaves, which a rank computes at once.
std::string describe_leaves(const config::Settings& settings, const plan::StepPlan& plan) {
  const config::TrainingSettings& training = settings.training;
  const std::int64_t cuts = std::max(settings.context, training.context_grain);
  const std::int64_t at_once = plan.layouts.leaves_at_once;
  return text("  leaves                 ", settings.leaves() * at_once, " of ",
              training.leaf == config::Leaf::sequence ? 1 : training.micro_batch_size, " x ",
              training.sequence_length / cuts, " tokens, ", plan.grid.micro_batches() * at_once,
              " on each rank", at_once > 1 ? text(", ", at_once, " at once") : "", "\n");
}

std::string describe_model(const config::Settings& settings, const Trainer& trainer) {
  const plan::StepPlan& plan = trainer.program(Purpose::train).plan;
  std::int64_t padded = 0, frozen = 0;
  for (const plan::StepPlan& stage : trainer.stages()) {
    frozen += stage.frozen_count;
    for (const plan::FlatParameter& flat : stage.flats)
      if (stage.units[flat.unit].tied_stages.source < 0) padded += flat.padded;
  }
  const std::int64_t parameters = trainer.model().parameter_count();
  std::string rows;
  for (const auto& [what, value] : config::model_rows(settings))
    rows += print("  %-22s ", what.c_str()) + value + "\n";
  return text("model\n  parameters             ", format_count(parameters),
              frozen > 0 ? " (" + format_count(frozen) + " frozen)" : "", " in ",
              trainer.model().units(), " units, ", format_count(padded - parameters),
              " elements of padding\n", rows, describe_leaves(settings, plan), "\n");
}

/// Describes the planned host memory, if more than batches is copied there, or stays.
std::string host_memory(const runtime::Program& program) {
  const std::int64_t up = plan::copied_bytes(program.plan, plan::Kind::copy_to_device);
  const std::int64_t down = plan::copied_bytes(program.plan, plan::Kind::copy_to_host);
  // A copied buffer of a unit is neither a batch nor sums.
  const bool copies = std::any_of(
      program.plan.actions.begin(), program.plan.actions.end(),
      [](const plan::Action& one) { return one.unit >= 0 && plan::copied_bytes(one) > 0; });
  if (!copies && program.plan.checkpoint < 0) return "";
  return "  in host memory\n" + plan::memory_table(program.plan, program.host_memory) +
         (!copies ? ""
                  : "  copied                 " + format_bytes(up) + " to the device, " +
                        format_bytes(down) + " to the host\n");
}

std::string available_memory() {
  const std::string on_host = format_bytes(runtime::available_memory_bytes(plan::Space::host));
  if (!has_device) return on_host;
  return format_bytes(runtime::available_memory_bytes(plan::Space::device)) + " on the device, " +
         on_host + " on the host";
}

/// Describes the threads that the bits of matrix products may depend on; "" for a device's library.
std::string with_threads(int matrix_threads) {
  if (has_device) return "";
  return text(" with ", matrix_threads, matrix_threads == 1 ? " thread" : " threads",
              " for matrix products");
}

/// Describes the grain, and why it makes sums differ from one rank's, if it does.
std::string order_of_sums(const plan::StepPlan& plan) {
  const std::int64_t grain = plan.layouts.sum_grain;
  if (grain == 0) return "";
  const std::string why = plan::why_grain_differs(plan);
  return (why.empty() ? "" : "      " + why + "\n") + "  order of sums          " +
         plan::describe_grain(grain) + "\n";
}

/// Describes the order of sums. `unlike_kernels`: how the kernels of ranks differ; "": they don't.
std::string describe_sums(const plan::StepPlan& plan, DType dtype,
                          const std::string& unlike_kernels, int matrix_threads) {
  const std::string cut =
      math::is_row_partition_invariant(dtype) ? "" : plan::describe_cut_products(plan);
  return "  sums over leaves       " +
         (!unlike_kernels.empty()    ? "equal to 1 rank up to rounding"
          : plan.sums_in_one_order() ? plan::describe_sums(plan) + with_threads(matrix_threads)
                                     : plan::describe_sums(plan)) +
         (unlike_kernels.empty() ? ""
                                 : ", as ranks have different kernels:\n      " + unlike_kernels) +
         "\n" + (cut.empty() ? "" : "      " + cut + "\n") + order_of_sums(plan);
}

/// Describes how ranks of a node communicate, if nodes have several.
std::string inside_nodes(const Trainer& trainer, mesh::Mesh& mesh) {
  double most = mesh.node().size();
  mesh.world().all_reduce_max(&most, 1);
  if (most < 2.0 || has_device) return "";
  const std::string& why_not = trainer.why_no_windows();
  return text("  inside nodes           ",
              trainer.program(Purpose::train).plan.grid.window > 0
                  ? std::string("ranks read each other's memory")
              : why_not.empty() ? std::string("by MPI")
                                : "by MPI: " + why_not,
              "\n");
}

/// Writes a stage's summary as text for other ranks, and reads it back.
std::string write(const plan::StageSummary& stage) {
  return text(stage.arena_bytes, ' ', stage.host_arena_bytes, ' ', stage.bytes_sent, ' ',
              stage.parameters, ' ', stage.stay_gathered, ' ', stage.deferred, ' ', stage.backwards,
              ' ', config::format_number(stage.flops), ' ', stage.units);
}
plan::StageSummary read(const std::string& text) {
  TextReader stream(text);
  plan::StageSummary stage;
  stream >> stage.arena_bytes >> stage.host_arena_bytes >> stage.bytes_sent >> stage.parameters >>
      stage.stay_gathered >> stage.deferred >> stage.backwards >> stage.flops;
  std::getline(stream >> std::ws, stage.units);
  return stage;
}

}  // namespace

std::string describe_graphs(const Trainer& trainer) {
  if (!has_device) return "";
  const runtime::GraphCount count = trainer.graphs();
  return text("graphs: ",
              count.graphs == 0 ? "none; kernels are submitted one by one"
                                : text(count.kernels, " kernels of a step in ", count.actions,
                                       " submissions of ", count.graphs, " graphs"),
              count.refused.empty() ? "" : "; others were refused: " + count.refused, "\n");
}

namespace {

/// Returns how often steps are audited, what that takes, which the plan says, and what it does not
/// find; "" if never.
std::string describe_audits(const config::Settings& settings, const Trainer& trainer) {
  if (settings.runtime.audit == 0) return "";
  const plan::StepPlan& step = trainer.program(Purpose::train).plan;
  const plan::StepPlan& audited = trainer.program(Purpose::audit).plan;
  return text("  audits                 one step in ", settings.runtime.audit, ": it computes ",
              plan::format_flops(audited.flops() - step.flops()), " more, and sends ",
              format_bytes(audited.bytes_sent() - step.bytes_sent()), " more\n",
              groups_of(audited) > 1
                  ? ""
                  : "                         each rank computes its own leaves again, as no other "
                    "has the same: errors that recur are not found\n");
}

}  // namespace

std::string describe_run(const config::Settings& settings, mesh::Mesh& mesh, const Trainer& trainer,
                         int matrix_threads) {
  const std::string ranks = mesh.table();
  const std::string unlike_kernels =
      comm::disagreement(mesh.world(), kernel_facts(settings, matrix_threads));
  const runtime::Program& program = trainer.program(Purpose::train);
  const plan::StepPlan& plan = program.plan;
  const std::string alone = why_alone();
  TextWriter out;
  out << describe_libraries() << ranks << (alone.empty() ? "" : "  note: " + alone + "\n")
      << "\nsettings\n"
      << config::summary(settings, on_ranks(trainer, mesh)) << "\n"
      << describe_model(settings, trainer)
      << plan::stages_text(summarize_stages(mesh, trainer), false, plan)
      << "plan of a step, each rank" << (plan.grid.stages() > 1 ? " of stage 0 (" : " (")
      << plan.actions.size() << " actions, hash " << format_hex(plan.hash()) << ")\n"
      << plan::memory_table(plan, program.memory) << host_memory(program)
      << "  order of ranks         " << plan::describe_ranks(plan.grid) << "\n"
      << "  sent to other ranks    " << format_bytes(plan.bytes_sent())
      << (plan.bytes_left_out_if_even() > 0
              ? text(", of it up to ", format_bytes(plan.bytes_left_out_if_even()),
                     " in further rounds of experts")
              : "")
      << "\n"
      << (plan.grid.has_levels()
              ? text("  collectives            ",
                     plan::collectives_text(plan.grid, mesh.ranks_per_node()), "\n")
              : "")
      << inside_nodes(trainer, mesh) << "  compute                "
      << plan::format_flops(plan.flops()) << "\n"
      << "  streams                "
      << (trainer.streams() == runtime::Streams::threads ? "on threads of their own"
          : trainer.streams() == runtime::Streams::device
              ? "of the device"
              : "inline, on one thread: nothing overlaps")
      << "\n"
      << (has_device && mesh.world().size() > 1
              ? text("  between devices        ",
                     name_in(comm::transport_names, trainer.settings().transport),
                     trainer.settings().shared_device.empty()
                         ? ""
                         : "; " + trainer.settings().shared_device,
                     "\n")
              : "")
      << threads_line(host_threads(), matrix_threads, mesh.cores())
      << (has_device
              ? ""
              : "  pages                  " +
                    (plan.grid.window > 0 ? describe_shared_pages() : describe_pages()) + "\n")
      << "  subnormal numbers      "
      << (settings.runtime.subnormals == Subnormals::flush ? "flushed to zero" : "kept") << "\n"
      << (plan::experts_text(plan, mesh.ranks_per_node()).empty()
              ? ""
              : text("  experts over ranks     ", plan::experts_text(plan, mesh.ranks_per_node()),
                     "\n"))
      << (plan::updates_text(plan).empty()
              ? ""
              : text("  updates                ", plan::updates_text(plan), "\n"))
      << describe_audits(settings, trainer) << "  available memory       " << available_memory()
      << " for " << mesh.host().size() << (mesh.host().size() == 1 ? " rank" : " ranks")
      << " on this host\n"
      << describe_sums(plan, trainer.model().dtype(), unlike_kernels, matrix_threads) << "\n";
  return out.str();
}

std::vector<plan::StageSummary> summarize_stages(mesh::Mesh& mesh, const Trainer& trainer) {
  const runtime::Program& program = trainer.program(Purpose::train);
  const plan::StageSummary mine = plan::summarize_stage(program.plan, program.memory.arena_bytes,
                                                        program.host_memory.arena_bytes);
  std::vector<plan::StageSummary> stages;
  for (const std::string& text : mesh.pipeline().gather_texts(write(mine)))
    stages.push_back(read(text));
  if (stages.size() == 1) stages.clear();
  return stages;
}

std::string plan_json(const config::Settings& settings, mesh::Mesh& mesh, const Trainer& trainer,
                      const std::vector<plan::StageSummary>& stages) {
  const runtime::Program& program = trainer.program(Purpose::train);
  plan::Report report =
      plan::make_report(program.plan, program.memory, program.host_memory, mesh.node().size());
  report.strategy =
      config::strategy(settings, program.plan.layouts.accumulation, on_ranks(trainer, mesh));
  report.computed_on = name_in(math::kernel_form_names, settings.processor.kernels);
  report.stages = stages;
  TextWriter stream;
  plan::write_report_json(stream, program.plan, program.memory, program.host_memory, report);
  return stream.str();
}

}  // namespace ostrakon::train
