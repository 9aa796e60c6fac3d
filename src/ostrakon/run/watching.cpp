// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/watching.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/trainer/programs.hpp>
#include <ostrakon/watch/fault.hpp>

namespace ostrakon::train {

Watching::Watching(const config::Settings& settings, mesh::Mesh& mesh, const Trainer& trainer,
                   Console& console) {
  const std::int64_t wanted = settings.runtime.watchdog;
  const bool watches = wanted != config::no_watchdog;
  if (!watches && settings.runtime.inject.empty()) return;
  comm::Communicator& world = mesh.world();
  const double seconds = watches ? static_cast<double>(wanted) : 0.0;
  progress_ = std::make_unique<watch::Progress>(rank_in_plans(mesh), watch::Limits(seconds));
  arm(settings, mesh, trainer);
  if (!watches) return;
  watch::Watchdog::Setup setup;
  setup.progress = progress_.get();
  setup.rank = world.rank();
  setup.ranks = world.size();
  setup.rank_in_plans = rank_in_plans(mesh);
  setup.folder = settings.output.directory;
  setup.gather_texts = [&world](const std::string& text) { return world.gather_texts(text); };
  watchdog_ = std::make_unique<watch::Watchdog>(std::move(setup));
  const std::string& why_not = watchdog_->why_not();
  if (why_not.empty()) return;
  if (wanted != config::automatic_watchdog)
    throw CollectiveError(
        text("runtime.watchdog = ", wanted, ": ", why_not, "; expected ranks that can, or off"));
  console.say(text("no watchdog: ", why_not, "\n"));
  watchdog_.reset();
}

void Watching::arm(const config::Settings& settings, mesh::Mesh& mesh, const Trainer& trainer) {
  if (settings.runtime.inject.empty()) return;
  mesh.world().run_collectively([&] {
    const watch::Fault fault = watch::parse_fault(settings.runtime.inject);
    require(fault.rank < mesh.world().size(), "runtime.inject: rank ", fault.rank,
            ": expected one of the ", mesh.world().size(), " ranks");
    require(fault.step <= settings.training.steps, "runtime.inject: step ", fault.step,
            ": expected one of the ", settings.training.steps, " steps");
    require(fault.kind != watch::FaultKind::swap ||
                trainer.streams() == runtime::Streams::in_plan_order,
            "runtime.inject: swap takes runtime.streams: inline, where actions have one order");
    const std::int64_t audit = settings.runtime.audit;
    const bool is_flip = fault.kind == watch::FaultKind::flip;
    require(is_flip || fault.is_at_checkpoint() || !trainer.is_audited(fault.step) ||
                (fault.lasts() && audit > 1),
            "runtime.inject: step ", fault.step, " is audited (runtime.audit = ", audit,
            "), where only flips strike; expected a step that is not, or runtime.audit = 0");
    // A flip needs arrays: Trainer::flip.
    if (fault.rank == mesh.world().rank() && !is_flip)
      progress_->arm(fault, trainer.program(plan::Purpose::train).plan);
  });
}

}  // namespace ostrakon::train
