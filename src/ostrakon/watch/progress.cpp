// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/watch/progress.hpp>

#include <algorithm>
#include <cstring>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>

namespace ostrakon::watch {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

// Where nothing was measured, an action may take this long, and later never less than the floor.
constexpr double first_seconds = 60.0, floor_seconds = 5.0, data_seconds = 30.0;
constexpr double first_device_seconds = 600.0;
constexpr double factor = 10.0;       // of measured times
constexpr float most_recent = 60.0F;  // longer times count as this one
constexpr float forgetting = 0.95F;   // of the longest recent time, with each run
constexpr double silence_seconds = 6.0;
constexpr double notice_seconds = 5.0, first_notice_seconds = 30.0, notice_factor = 3.0;

std::atomic<Progress*> current_progress{nullptr};
thread_local bool drives_the_run = false;
thread_local bool is_communicating = false;
thread_local double communicated = 0.0;  // seconds

bool is_called_together(const plan::Action& action) {
  return plan::communicates(action.kind) && action.span.ranks > 1;
}

/// The next action after `index` that is a collective of another stream and needs nothing from
/// `index` on; -1: there is none.
int next_to_swap(const plan::StepPlan& plan, int index) {
  const plan::Action& moved = plan.actions[static_cast<std::size_t>(index)];
  for (std::size_t a = static_cast<std::size_t>(index) + 1; a < plan.actions.size(); ++a) {
    const plan::Action& next = plan.actions[a];
    const auto precedes = [&](int before) { return before < index; };
    if (is_called_together(next) && next.stream != moved.stream &&
        std::all_of(next.waits.begin(), next.waits.end(), precedes))
      return static_cast<int>(a);
  }
  return -1;
}

template <std::size_t size>
void copy_text(char (&to)[size], const std::string& from) {
  const std::size_t length = std::min(from.size(), size - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

}  // namespace

double Limits::of_action(plan::Kind kind, double recent, bool on_device) const {
  if (seconds_ > 0.0) return seconds_;
  if (recent == 0.0 && on_device) return first_device_seconds;
  if (kind == plan::Kind::load) return std::max(data_seconds, factor * recent);
  return recent > 0.0 ? std::max(floor_seconds, factor * recent) : first_seconds;
}

double Limits::of_end(double recent) const {
  if (seconds_ > 0.0) return seconds_;
  return recent > 0.0 ? std::max(first_seconds, factor * recent) : first_device_seconds;
}

double Limits::of(Occupation occupation, double longest, double allowance) const {
  if (traits(occupation).seconds == 0.0) return 0.0;
  if (seconds_ > 0.0) return seconds_;
  return std::max(traits(occupation).seconds + allowance, factor * longest);
}

double Limits::of_silence() const { return seconds_ > 0.0 ? seconds_ : silence_seconds; }

double Limits::of_notice(double usual) {
  return usual > 0.0 ? std::max(notice_seconds, notice_factor * usual) : first_notice_seconds;
}

Progress* progress() { return current_progress.load(relaxed); }

Progress::Progress(int rank, Limits limits) : rank_(rank), limits_(limits) {
  drives_the_run = true;
  driver_.since = seconds_now();
  current_progress = this;
}

Progress::~Progress() {
  current_progress = nullptr;
  drives_the_run = false;
}

double Progress::seconds_since(double then, double now) const {
  return std::max(0.0, now - std::max(then, resumed_.load(relaxed)));
}

void Progress::learn(const State& state, double now) {
  std::atomic<double>& longest = longest_[static_cast<std::size_t>(state.occupation.load(relaxed))];
  const double seconds = seconds_since(state.since.load(relaxed), now);
  longest.store(std::max(seconds, longest.load(relaxed)), relaxed);
}

void Progress::begin_run(const plan::StepPlan& plan, bool on_device) {
  learn(driver_, seconds_now());
  const std::lock_guard<std::mutex> lock(mutex_);
  Known& known = known_.at(static_cast<std::size_t>(plan.purpose));
  if (known.plan != &plan) {
    known.plan = &plan;
    known.recent = std::make_unique<std::atomic<float>[]>(plan.actions.size());
    known.recent_run = 0.0F;
  }
  for (Cell& cell : cells_) {
    cell.current.store(-1, relaxed);
    cell.last_begun.store(-1, relaxed);
  }
  global_sums_.store(0, relaxed);
  running_ = &plan;
  on_device_ = on_device;
  ++runs_;
  run_since_ = seconds_now();
}

void Progress::end_run() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const double now = seconds_now();
  float& recent = known_[static_cast<std::size_t>(running_->purpose)].recent_run;
  recent = std::max(static_cast<float>(seconds_since(run_since_, now)), forgetting * recent);
  running_ = nullptr;
  driver_.since.store(now, relaxed);
}

void Progress::await(plan::Stream stream, int action, double now) {
  Cell& cell = cells_[static_cast<std::size_t>(stream)];
  const unsigned count = cell.count.load(relaxed);
  Entry& entry = cell.entries[count % kept];
  entry.step.store(step_.load(relaxed), relaxed);
  entry.action.store(action, relaxed);
  entry.purpose.store(static_cast<int>(running_->purpose), relaxed);
  entry.begin.store(now, relaxed);
  entry.end.store(0.0, relaxed);
  cell.since.store(now, relaxed);
  cell.current.store(action, relaxed);
  cell.count.store(count + 1, relaxed);
}

bool Progress::begin(plan::Stream stream, int action) {
  Cell& cell = cells_[static_cast<std::size_t>(stream)];
  cell.last_begun.store(action, relaxed);
  const plan::Kind kind = running_->actions[static_cast<std::size_t>(action)].kind;
  if (plan::is_global_sum(kind)) global_sums_.fetch_add(1, relaxed);
  if (!is_armed_ || running_->purpose != plan::Purpose::train) return true;
  const std::int64_t step = step_.load(relaxed);
  const bool is_meant = fault_.lasts() ? step >= fault_.step && fault_.slows(kind)
                                       : step == fault_.step && action == fault_action_;
  if (!is_meant) return true;
  strike(fault_);
  return fault_.kind != FaultKind::skip;
}

void Progress::end(plan::Stream stream, int action, double now) {
  Cell& cell = cells_[static_cast<std::size_t>(stream)];
  const double since = cell.since.load(relaxed);
  cell.entries[(cell.count.load(relaxed) - 1) % kept].end.store(now, relaxed);
  cell.current.store(-1, relaxed);
  std::atomic<float>& recent =
      known_[static_cast<std::size_t>(running_->purpose)].recent[static_cast<std::size_t>(action)];
  const float seconds = std::min(most_recent, static_cast<float>(seconds_since(since, now)));
  recent.store(std::max(seconds, forgetting * recent.load(relaxed)), relaxed);
}

void Progress::arm(const Fault& fault, const plan::StepPlan& plan) {
  fault_ = fault;
  for (std::size_t a = 0; a < plan.actions.size() && fault_action_ < 0 && !fault.lasts(); ++a)
    if (plan::traits(plan.actions[a].kind).activity != plan::Activity::none &&
        fault.names(plan.describe(plan.actions[a])))
      fault_action_ = static_cast<int>(a);
  require(fault_action_ >= 0 || fault.is_at_checkpoint() || fault.lasts(), "runtime.inject: rank ",
          fault.rank, " has no action \"", fault.action,
          "\": ostrakon-plan shows those of the plan");
  if (fault.kind == FaultKind::swap) {
    fault_next_ = next_to_swap(plan, fault_action_);
    require(fault_next_ >= 0, "runtime.inject: no collective of another stream could come before ",
            plan.describe(plan.actions[static_cast<std::size_t>(fault_action_)]));
  }
  is_armed_ = true;
}

void Progress::reorder(const plan::StepPlan& plan, std::vector<int>& order) const {
  if (!is_armed_ || fault_next_ < 0 || plan.purpose != plan::Purpose::train ||
      step_.load(relaxed) != fault_.step)
    return;
  const auto first = std::find(order.begin(), order.end(), fault_action_);
  const auto next = std::find(first, order.end(), fault_next_);
  if (next != order.end()) std::rotate(first, next, next + 1);
}

void Progress::inject_checkpoint_fault(std::int64_t step) {
  if (is_armed_ && fault_.is_at_checkpoint() && step == fault_.step) strike(fault_);
}

Record Progress::record(double now) const {
  Record record;
  record.step = step_.load(relaxed);
  const auto tell = [&](const State& state, Occupation& occupation, float& seconds, float& limit,
                        float& notice) {
    occupation = state.occupation.load(relaxed);
    const double longest = longest_[static_cast<std::size_t>(occupation)].load(relaxed);
    const double allowance = state.allowance.load(relaxed);
    seconds = static_cast<float>(seconds_since(state.since.load(relaxed), now));
    limit = static_cast<float>(limits_.of(occupation, longest, allowance));
    if (traits(occupation).has_notice)
      notice = static_cast<float>(allowance + Limits::of_notice(longest));
  };
  tell(driver_, record.occupation, record.seconds, record.limit, record.notice);
  tell(background_, record.background, record.background_seconds, record.background_limit,
       record.background_notice);
  if (const char* const call = call_.load(relaxed)) {
    copy_text(record.call, call);
    record.wait = Wait::anyone;
    record.seconds = static_cast<float>(seconds_since(call_since_.load(relaxed), now));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  record.runs = runs_;
  record.in_run = running_ != nullptr;
  record.global_sums = global_sums_.load(relaxed);
  for (std::size_t s = 0; s < cells_.size(); ++s)
    record.begun[s] = cells_[s].last_begun.load(relaxed);
  if (running_ != nullptr) {
    record.purpose = running_->purpose;
    describe_action(record, now);
  }
  return record;
}

/// Names the first action of the running plan that has not ended, and what it waits for.
void Progress::describe_action(Record& record, double now) const {
  int first = -1;
  for (std::size_t s = 0; s < cells_.size(); ++s) {
    const int current = cells_[s].current.load(relaxed);
    if (current < 0 || (first >= 0 && current > first)) continue;
    first = current;
    record.stream = static_cast<plan::Stream>(s);
  }
  if (first < 0) {
    // All handlers have returned, and the run waits for what they have begun.
    record.wait = Wait::nobody;
    double last = run_since_;
    const plan::Action* message = nullptr;
    for (const Cell& cell : cells_) {
      const int action = cell.last_begun.load(relaxed);
      last = std::max(last, cell.entries[(cell.count.load(relaxed) - 1) % kept].end.load(relaxed));
      if (action >= 0 && plan::is_message(running_->actions[static_cast<std::size_t>(action)].kind))
        message = &running_->actions[static_cast<std::size_t>(action)];
    }
    record.seconds = static_cast<float>(seconds_since(last, now));
    const double recent = known_[static_cast<std::size_t>(running_->purpose)].recent_run;
    record.limit = static_cast<float>(limits_.of_end(recent));
    record.notice = recent > 0.0 ? static_cast<float>(Limits::of_notice(recent)) : 0.0F;
    copy_text(record.what, "the end of its plan");
    if (message != nullptr)
      describe_waits(record, *running_, *message, true);
    else if (on_device_)
      record.wait = Wait::device;
    return;
  }
  const plan::Action& action = running_->actions[static_cast<std::size_t>(first)];
  const Cell& cell = cells_[static_cast<std::size_t>(record.stream)];
  const Known& known = known_[static_cast<std::size_t>(running_->purpose)];
  const bool is_in_mpi = record.wait == Wait::anyone;
  record.action = first;
  record.seconds = static_cast<float>(seconds_since(cell.since.load(relaxed), now));
  const double recent = known.recent[static_cast<std::size_t>(first)].load(relaxed);
  record.limit = static_cast<float>(limits_.of_action(action.kind, recent, on_device_));
  record.notice = recent > 0.0 ? static_cast<float>(Limits::of_notice(recent)) : 0.0F;
  record.reads_data = action.kind == plan::Kind::load;
  copy_text(record.what, running_->describe(action));
  record.wait = is_in_mpi ? Wait::anyone : Wait::nobody;
  describe_waits(record, *running_, action, cell.last_begun.load(relaxed) == first);
}

/// Says for whom an action waits: one that communicates for its ranks, and one that has not begun
/// for the ranks of a message that continues after its handler has returned.
void Progress::describe_waits(Record& record, const plan::StepPlan& plan,
                              const plan::Action& action, bool has_begun) const {
  if (!has_begun) {
    for (const int before : action.waits)
      if (plan::is_message(plan.actions[static_cast<std::size_t>(before)].kind))
        return describe_waits(record, plan, plan.actions[static_cast<std::size_t>(before)], true);
    if (on_device_) record.wait = Wait::device;
    return;
  }
  if (plan::is_global_sum(action.kind)) {
    record.wait = Wait::all;
  } else if (plan::is_message(action.kind)) {
    record.wait = Wait::peer;
    const int ranks_of_stage = plan.grid.ranks_of_stage();
    record.peer = action.peer * ranks_of_stage + rank_ % ranks_of_stage;
  } else if (is_called_together(action)) {
    record.wait = Wait::span;
    record.members = action.span.ranks;
    record.stride = plan.grid.stride(action.span);
    record.first = rank_ - plan.grid.coordinate(rank_, action.span) * record.stride;
  }
}

std::vector<Progress::Past> Progress::actions(plan::Stream stream) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Cell& cell = cells_[static_cast<std::size_t>(stream)];
  const unsigned count = cell.count.load(relaxed);
  std::vector<Past> past;
  for (unsigned i = count > kept ? count - kept : 0; i < count; ++i) {
    const Entry& entry = cell.entries[i % kept];
    const plan::StepPlan* const plan =
        known_.at(static_cast<std::size_t>(entry.purpose.load(relaxed))).plan;
    const auto action = static_cast<std::size_t>(entry.action.load(relaxed));
    if (plan == nullptr || action >= plan->actions.size()) continue;
    past.push_back({entry.step.load(relaxed), plan->describe(plan->actions[action]),
                    entry.begin.load(relaxed), entry.end.load(relaxed)});
  }
  return past;
}

Progress::State& Progress::state_of_this_thread() { return drives_the_run ? driver_ : background_; }

OccupationScope::OccupationScope(Occupation occupation, double allowance) : progress_(progress()) {
  if (progress_ == nullptr) return;
  Progress::State& state = progress_->state_of_this_thread();
  before_ = state.occupation.load(relaxed);
  allowance_before_ = state.allowance.load(relaxed);
  const double now = seconds_now();
  progress_->learn(state, now);
  state.since.store(now, relaxed);
  state.allowance.store(allowance, relaxed);
  state.occupation.store(occupation, relaxed);
}

OccupationScope::~OccupationScope() {
  if (progress_ == nullptr) return;
  Progress::State& state = progress_->state_of_this_thread();
  const double now = seconds_now();
  progress_->learn(state, now);
  state.occupation.store(before_, relaxed);
  state.allowance.store(allowance_before_, relaxed);
  state.since.store(now, relaxed);
}

MpiCallScope::MpiCallScope(const char* call) {
  if (is_communicating) return;
  is_communicating = true;
  begin_ = seconds_now();
  Progress* const found = progress();
  if (found == nullptr || !drives_the_run) return;
  progress_ = found;
  found->learn(found->driver_, begin_);
  found->call_since_.store(begin_, relaxed);
  found->call_.store(call, relaxed);
}

MpiCallScope::~MpiCallScope() {
  if (begin_ == 0.0) return;
  is_communicating = false;
  const double now = seconds_now();
  communicated += now - begin_;
  if (progress_ == nullptr) return;
  progress_->driver_.since.store(now, relaxed);
  progress_->call_.store(nullptr, relaxed);
}

double seconds_communicating() { return communicated; }

}  // namespace ostrakon::watch
