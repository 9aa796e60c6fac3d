// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/save_policy.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>

namespace ostrakon::train {

SavePolicy::SavePolicy(Saver& saver, Console& console, config::Timers& timers, std::int64_t every,
                       int ranks)
    : saver_(saver), console_(console), timers_(timers), every_(every), ranks_(ranks) {}

void SavePolicy::after_step(const StepEnd& end, const Requests& requests, const Begin& begin) {
  const bool by_deck = every_ > 0 && (end.step % every_ == 0 || end.is_last);
  if (by_deck || requests.save || requests.stop)
    save(end, begin);
  else if (!requests.is_writing)
    attempt([&] { tell(saver_.advance()); });
}

void SavePolicy::save(const StepEnd& end, const Begin& begin) {
  const config::ScopedTimer timer(timers_, "checkpoint");
  const bool overlapped = !end.is_last && saver_.can_overlap();
  finish();
  if (saved_step_ == end.step) return;
  attempt([&] {
    begin(overlapped);
    if (!overlapped) tell(saver_.finish());
  });
  if (end.stops && saved_step_ != end.step)
    throw CollectiveError(
        text("stopped as asked, but without a checkpoint of step ", end.step, ": ", failure_));
}

void SavePolicy::finish() {
  attempt([&] { tell(saver_.finish()); });
}

void SavePolicy::attempt(const std::function<void()>& work) {
  try {
    work();
  } catch (const CollectiveError& error) {
    failure_ = error.what();
    console_.say(text("  checkpoint failed: ", failure_, "\n"));
  }
}

void SavePolicy::tell(const std::optional<Saver::Saved>& saved) {
  if (!saved) return;
  failure_.clear();
  saved_step_ = saved->step;
  longest_ = std::max(longest_, saved->worked);
  console_.say(text(
      "  checkpoint of step ", saved->step, ": ", saved->path, ", ", format_bytes(saved->bytes),
      print(" in %.2f s, of which training waited %.2f s", saved->seconds, saved->stalled), "\n"));
  if (!saved->remark.empty()) console_.say(text("  (", saved->remark, ")\n"));
}

void SavePolicy::require_saved() const {
  if (!failure_.empty())
    throw CollectiveError("the last checkpoint could not be saved: " + failure_);
}

double SavePolicy::seconds_to_save() const {
  constexpr double slowest_disk = 100e6;  // bytes/s per rank, assumed until a save was measured
  const double save =
      longest_ > 0.0 ? longest_ : static_cast<double>(saver_.bytes()) / ranks_ / slowest_disk;
  return (saver_.is_saving() ? 2.0 : 1.0) * save;
}

}  // namespace ostrakon::train
