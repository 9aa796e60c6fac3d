// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/trainer.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/comm/agreement.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/subnormals.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/trainer/attention_choice.hpp>
#include <ostrakon/trainer/memory_check.hpp>
#include <ostrakon/trainer/model_description.hpp>
#include <ostrakon/trainer/peak_rate.hpp>
#include <ostrakon/trainer/program.hpp>
#include <ostrakon/trainer/resolve.hpp>
#include <ostrakon/trainer/trainer_checks.hpp>
#include <ostrakon/trainer/warm_up.hpp>
#include <ostrakon/watch/progress.hpp>
#include <utility>

namespace ostrakon::train {

using plan::Purpose;

namespace {

/// How often a step runs whose audit has found something, before the run ends.
constexpr int most_attempts = 2;

/// Says where to begin again, if `audited_step` is the last step whose audit has passed; 0: none.
std::string advice_after(std::int64_t audited_step) {
  if (audited_step == 0) return "no audit has passed before. Begin again without that host";
  const std::string passed = text("the last step whose audit has passed is ", audited_step);
  // An audit is made before the update of its step, which may have gone wrong.
  if (audited_step == 1) return passed + ". Begin again without that host";
  return text(passed, ". Resume without that host, from a checkpoint of step ", audited_step - 1,
              " or before");
}

}  // namespace

Trainer::Trainer(std::unique_ptr<const model::Model> model, const TrainerSettings& settings,
                 mesh::Mesh& mesh)
    : settings_(checked(settings, *model, mesh.world())),
      mesh_(mesh),
      model_(std::move(model)),
      policy_([&] {
        RunPolicy found = resolve(settings_, *model_, mesh);
        why_no_windows_ = std::move(found.why_no_windows);
        return std::move(found.policy);
      }()),
      description_(describe(*model_, settings_.optimizer)),
      programs_(agree_on_programs(description_, policy_, mesh, settings_.audit_every > 0)),
      layout_(programs_.stages, *model_, settings_.optimizer, rank_in_plans(mesh)),
      rank_locations_(find_rank_locations(layout_.rank(), mesh)),
      guard_(settings_, model_->dtype(), programs_.train.plan.layouts.updates_early) {
  context_.rank = layout_.rank();
  require_same_plan();
}

double Trainer::model_flops() const {
  return plan::model_flops(description_) *
         static_cast<double>(programs_.train.plan.grid.micro_batches()) / policy_.stages;
}

std::int64_t Trainer::planned_peak_bytes() const {
  return programs_.arena_bytes(plan::Space::device) + programs_.arena_bytes(plan::Space::host);
}

void Trainer::require_within(std::int64_t bytes) {
  const std::int64_t planned =
      has_device ? programs_.arena_bytes(plan::Space::device) : planned_peak_bytes();
  mesh_.world().run_collectively([&] {
    require(bytes == 0 || planned <= bytes, "memory.limit = ", format_bytes(bytes),
            ": the arena of a rank takes ", format_bytes(planned),
            "; expected settings that take less: ostrakon-plan --choose --memory BYTES finds some");
  });
}

void Trainer::require_memory() {
  train::require_memory(programs_, policy_, model_->parameter_count(), mesh_);
}

void Trainer::require_same_plan() {
  Facts plans;
  const auto add = [&](const char* name, Purpose purpose) {
    plans.push_back({text("plan of ", name), format_hex(programs_.hashes.at(purpose))});
  };
  add("training", Purpose::train);
  add("validation", Purpose::evaluate);
  add("writing weights", Purpose::export_parameters);
  if (programs_.audit) add("audited steps", Purpose::audit);
  comm::require_agreement(mesh_.world(), "ranks have made different plans", plans);
}

void Trainer::allocate() {
  if (executor_ != nullptr) throw Error("Trainer::allocate was called twice; expected one call");
  const ModelState::Options options = {settings_.policy.moments.dtype, settings_.seed,
                                       settings_.pinned_host_memory};
  device_memory_.before = device_bytes_in_use();
  state_ = std::make_unique<ModelState>(programs_, layout_, options, mesh_);
  std::int64_t in_use = device_bytes_in_use();
  const auto taken = [&] {  // other users of the device may free memory meanwhile
    const std::int64_t before = std::exchange(in_use, device_bytes_in_use());
    return std::max<std::int64_t>(0, in_use - before);
  };
  const bool has_streams = settings_.streams == runtime::Streams::device;
  const TransportOptions transports = {settings_.transport, has_streams,
                                       settings_.single_communicators, settings_.collective_timeout,
                                       end_job_alone};
  channels_ = std::make_unique<Channels>(programs_, layout_.rank(), mesh_, transports,
                                         state_->memory().shared());
  device_memory_.communication = taken();
  executor_ = std::make_unique<runtime::Executor>(state_->memory().arenas(), settings_.streams);
  executor_->on_failure(
      [channels = channels_.get()](const auto& failure) { channels->note_failure(failure); });
  for (int s = 0; s < plan::streams; ++s) {
    const auto stream = static_cast<plan::Stream>(s);
    if (!has_streams) continue;
    if (channels_->blocks(stream))
      executor_->run_on_thread(stream);
    else if (stream == plan::Stream::send || stream == plan::Stream::receive)
      executor_->submit_on_thread(stream);  // a message waits for another stage
  }
  math::warm_up_products();
  const StepHandlers::Parts parts = {context_,  programs_,  layout_, description_,
                                     settings_, *channels_, guard_,  mesh_.world()};
  handlers_ = std::make_unique<StepHandlers>(parts);
  handlers_->install(*executor_);
  if constexpr (has_device) {
    const math::SubnormalsScope scope(settings_.subnormals);
    const runtime::Arenas arenas = state_->memory().arenas();
    products_ = pin_products(parts, arenas, {settings_.products_file, earlier_products_});
    warm_up_programs(parts, arenas);
    state_->warm_up();
    agree_on_attention(mesh_.world());
    products_.lines += unpinned_lines(mesh_.world());
    if (settings_.graphs) capture_graphs();
  }
  device_memory_.computing = taken();
}

/// Gives the device the work of all programs that does not change from run to run.
void Trainer::capture_graphs() {
  context_.result.loss_scale = guard_.loss_scale();
  for (const runtime::Program* program : programs_.all()) {
    context_.program = program;
    executor_->capture(*program);
  }
}

runtime::GraphCount Trainer::graphs() const {
  return executor_ == nullptr ? runtime::GraphCount() : executor_->graphs(programs_.train);
}

DeviceMemoryUse Trainer::device_memory() const {
  DeviceMemoryUse use = device_memory_;
  use.kokkos = runtime::memory_count().library_bytes;
  return use;
}

void Trainer::initialize(checkpoint::ParameterSource* weights) {
  require_allocated("Trainer::initialize");
  const math::SubnormalsScope scope(settings_.subnormals);
  state_->initialize(weights);
  guard_ = StepGuard(settings_, model_->dtype(), guard_.updates_early());
  start_ = {};
  steps_done_ = audited_step_ = 0;
  context_.is_intact = true;
}

void Trainer::require_allocated(const char* call) const {
  if (executor_ == nullptr)
    throw Error(text(call, " was called before Trainer::allocate; expected it after"));
}

void Trainer::require_state(const char* call) const {
  require_allocated(call);
  if (!state_->has_values())
    throw Error(text(call,
                     " was called before the parameters have values; expected "
                     "Trainer::initialize, or a checkpoint to resume from, before"));
}

void Trainer::begin_step(data::SampleSource& samples, std::int64_t step) {
  context_.samples = &samples;
  context_.first_sample = static_cast<std::uint64_t>(samples_before(step));
  context_.counted.reset();
  context_.step = step;
  context_.update = guard_.updates() + 1;
  context_.diagnoses = false;
  context_.inject_nonfinite = std::exchange(next_nonfinite_, -1);
  context_.verdict = guard_.before_sums();
  context_.audit_differs = false;
  context_.failure = nullptr;
  context_.result.loss_scale = guard_.loss_scale();
  context_.result.audited = false;
  context_.result.audit_finding.clear();
  context_.result.learning_rate = optim::learning_rate(
      settings_.schedule, settings_.optimizer.learning_rate, step, settings_.steps);
}

void Trainer::run(const runtime::Program& program) {
  context_.program = &program;
  context_.assumed = context_.verdict;
  context_.load_error.clear();
  context_.counted_terms = 0;
  handlers_->diagnosis().restart_notes();
  executor_->run(program);
  if (run_observer_) run_observer_(program);
}

bool Trainer::is_audited(std::int64_t step) const {
  return settings_.audit_every > 0 && step % settings_.audit_every == 0;
}

StepResult Trainer::step(data::SampleSource& samples, std::int64_t step) {
  require_state("Trainer::step");
  require(step == steps_done_ + 1, "Trainer::step was called with step ", step, "; expected step ",
          steps_done_ + 1, ": one after the other");
  const math::SubnormalsScope scope(settings_.subnormals);
  const bool was_intact = context_.is_intact;
  const bool is_optimistic = programs_.train.plan.layouts.updates_optimistically;
  const bool audits = is_audited(step);
  if (watch::Progress* const progress = watch::progress()) progress->set_step(step);
  context_.audit_tables.clear();
  for (int attempt = 0;; ++attempt) {
    begin_step(samples, step);
    if (audits)
      context_.audit = audit_round(programs_.audit->plan, step / settings_.audit_every, attempt);
    run(audits ? *programs_.audit : programs_.train);
    // All updates that don't stand have been undone.
    if (is_optimistic) context_.is_intact = was_intact;
    if (context_.failure) std::rethrow_exception(context_.failure);
    if (!context_.audit_differs) break;
    require_repeatable(step, attempt);
  }
  if (audits) note_audit();
  if (context_.verdict.needs_diagnosis) diagnose();
  context_.is_intact = was_intact;
  context_.result.update_repeated =
      is_optimistic && !context_.verdict.skip_update && !context_.updates_are_valid();
  guard_.finish(context_.verdict);
  context_.result.skipped = context_.verdict.skipped;
  context_.result.overflowed = context_.verdict.overflowed;
  steps_done_ = step;
  if (audits) audited_step_ = step;
  return context_.result;
}

/// Returns what audits of this step have found.
std::string Trainer::describe_findings() {
  const plan::StepPlan& plan = programs_.audit->plan;
  comm::Communicator& world = mesh_.world();
  std::vector<RankPlace> places(static_cast<std::size_t>(world.size()));
  const std::vector<std::string> all = world.gather_texts(text(context_.rank, " ", host_name()));
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::string& one = all[static_cast<std::size_t>(rank)];
    const std::size_t space = one.find(' ');
    places.at(static_cast<std::size_t>(std::stoi(one))) = {rank, one.substr(space + 1)};
  }
  return describe(plan, judge(plan, context_.audit_tables), places);
}

/// Notes that all ranks agree on the gradients of the step, perhaps once it was repeated.
void Trainer::note_audit() {
  context_.result.audited = true;
  if (context_.audit_tables.size() > 1) context_.result.audit_finding = describe_findings();
}

/// Throws CollectiveError where a step whose audit has found something was repeated already.
void Trainer::require_repeatable(std::int64_t step, int attempt) {
  if (attempt + 1 < most_attempts) return;
  const bool is_damaged = damages_state(judge(programs_.audit->plan, context_.audit_tables));
  context_.is_intact = false;
  throw CollectiveError(text(
      "step ", step,
      ": an audit has found wrong numbers, also when the step was repeated: ", describe_findings(),
      is_damaged ? ". Parameters are damaged; " : ". No parameter has changed in this step; ",
      advice_after(audited_step_)));
}

/// Finds the unit with a nonfinite gradient. No parameter has changed, so a second run makes the
/// same gradients, bit for bit.
void Trainer::diagnose() {
  context_.diagnoses = true;
  handlers_->diagnosis().restart();
  run(programs_.train);
  context_.diagnoses = false;
  if (context_.failure) std::rethrow_exception(context_.failure);
  context_.verdict = guard_.judge_gradient(context_.step, context_.diagnosis);
  if (!context_.verdict.error.empty()) throw CollectiveError(context_.verdict.error);
}

void Trainer::with_averages(const std::function<void()>& work) {
  require_state("Trainer::with_averages");
  require(settings_.ema > 0.0, "Trainer::with_averages was called with ema 0; expected more");
  const math::SubnormalsScope scope(settings_.subnormals);
  state_->prepare_exchange();
  const bool was_intact = std::exchange(context_.is_intact, false);
  state_->exchange_averages(*channels_);
  const auto exchange_back = [&] {
    state_->exchange_averages(*channels_);
    context_.is_intact = was_intact;
  };
  try {
    work();
  } catch (const CollectiveError&) {  // others end the job, perhaps on one rank alone
    exchange_back();
    throw;
  }
  exchange_back();
}

void Trainer::visit_parameters(const Visitor& visit) {
  require_state("Trainer::visit_parameters");
  context_.visitor = visit;
  run(programs_.export_parameters);
  context_.visitor = nullptr;
}

namespace {

/// Returns the flat parameter that contains a parameter of a unit of the model.
int flat_of(const plan::StepPlan& plan, int unit, const model::Parameter& parameter) {
  const auto planned =
      std::find_if(plan.units.begin(), plan.units.end(),
                   [&](const plan::PlannedUnit& one) { return one.number == unit; });
  require(planned != plan.units.end(), "a Trainer was asked for values of unit ", unit,
          "; expected one of this rank's stage");
  const int index = static_cast<int>(planned - plan.units.begin());
  return (parameter.frozen ? plan.frozen(index) : plan.trained(index)).first;
}

}  // namespace

View<const float*> Trainer::view_of(int unit, const model::Parameter& parameter,
                                    View<const float*> trained, View<const float*> frozen) const {
  const int flat = flat_of(layout_.plan(), unit, parameter);
  if (!layout_.is_in_one_run(flat, parameter)) return {};
  const std::int64_t first = layout_.first_of_piece(flat, parameter, 0);
  return (parameter.frozen ? frozen : trained).range(first, first + parameter.elements());
}

std::vector<float> Trainer::values_of(int unit, const model::Parameter& parameter,
                                      View<const float*> trained, View<const float*> frozen) const {
  const int flat = flat_of(layout_.plan(), unit, parameter);
  std::vector<float> values(static_cast<std::size_t>(parameter.elements()));
  const HostView<float*> all = host_view(values);
  for (const ParameterSlice& slice : layout_.slices_of_part(flat, {})) {
    if (slice.parameter->offset != parameter.offset) continue;
    std::int64_t from = slice.offset;
    slice.elements.for_each([&](std::int64_t element, std::int64_t run) {
      math::copy_to_host(Exec(), (parameter.frozen ? frozen : trained).range(from, from + run),
                         all.range(element, element + run));
      from += run;
    });
  }
  return values;
}

std::uint64_t Trainer::state_digest() {
  require_state("Trainer::state_digest");
  return state_->digest();
}

checkpoint::ShardMap Trainer::shard_map() const {
  return make_shard_map(layout_, rank_locations_, settings_.policy.moments.dtype);
}

checkpoint::Progress Trainer::progress() const {
  checkpoint::Progress progress;
  progress.step = steps_done_;
  progress.samples = samples_before(steps_done_ + 1);
  progress.seed = settings_.seed;
  progress.audited_step = audited_step_;
  guard_.save(progress);
  return progress;
}

void Trainer::require_fit(const checkpoint::Manifest& manifest) const {
  train::require_fit(manifest, layout_, settings_.policy.moments.dtype, settings_.loss);
}

void Trainer::restore(checkpoint::CheckpointReader& checkpoint) {
  require_allocated("Trainer::restore");
  const checkpoint::Progress& progress = checkpoint.manifest().progress;
  mesh::run_collectively_by_name(mesh_.world(), [&] { guard_.restore(progress); });
  state_->restore(checkpoint, *channels_);
  context_.step = steps_done_ = progress.step;
  audited_step_ = progress.audited_step;
  start_ = {progress.step + 1, progress.samples};
  context_.is_intact = true;
}

void Trainer::flip(const watch::Fault& fault) {
  require_allocated("Trainer::flip");
  std::vector<const plan::StepPlan*> plans;  // of the steps in which it may strike
  bool trains = false, audits = false;
  for (std::int64_t step = fault.step;
       step <= (fault.recurs ? settings_.steps : fault.step) && !(trains && audits); ++step)
    (is_audited(step) ? audits : trains) = true;
  if (trains) plans.push_back(&programs_.train.plan);
  if (audits) plans.push_back(&programs_.audit->plan);
  BitFlip::require_target(fault, plans, context_.rank);
  flip_ = std::make_unique<BitFlip>(fault, context_);
  executor_->set_fault_hook([this](const runtime::ActionBuffers& buffers, bool begins) {
    flip_->strike(buffers, begins);
  });
}

double Trainer::measure_peak_flops(double seconds) {
  require_allocated("Trainer::measure_peak_flops");
  const math::SubnormalsScope scope(settings_.subnormals);
  const double own =
      measure_product_rate(model_->dtype(), state_->memory().device_arena(), seconds);
  // Rates are summed as integers, which do not round.
  std::int64_t sum = std::llround(own);
  mesh_.world().all_reduce_sum(&sum, 1);
  return static_cast<double>(sum) / mesh_.world().size();
}

}  // namespace ostrakon::train
