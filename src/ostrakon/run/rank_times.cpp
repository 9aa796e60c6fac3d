// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/rank_times.hpp>

#include <ostrakon/base/clock.hpp>
#include <ostrakon/watch/progress.hpp>
#include <utility>

namespace ostrakon::train {
namespace {

/// Returns the part that an action belongs to; all_parts: to none.
int part_of(const plan::Action& action) {
  switch (plan::traits(action.kind).activity) {
    case plan::Activity::phase:
    case plan::Activity::update:
      return static_cast<int>(Part::compute);
    case plan::Activity::other:
      return static_cast<int>(action.kind == plan::Kind::load ? Part::data : Part::compute);
    case plan::Activity::copy:
      return static_cast<int>(Part::copies);
    case plan::Activity::collective:
    case plan::Activity::global_sum:
      return static_cast<int>(Part::communication);
    case plan::Activity::message:
    case plan::Activity::none:
      break;
  }
  return all_parts;
}

}  // namespace

void RankTimes::add(const RankTimes& other, double count) {
  step += count * other.step;
  for (std::size_t p = 0; p < of_part.size(); ++p) of_part[p] += count * other.of_part[p];
}

void RankTimer::begin_step() {
  if (end_ == 0.0) return;
  const double communicated = watch::seconds_communicating() - communicated_;
  after_ = RankTimes();
  after_[Part::communication] = communicated;
  after_[Part::between_steps] = seconds_now() - end_ - communicated;
}

void RankTimer::end_step(const runtime::Program& program,
                         const std::vector<runtime::ActionTime>& times) {
  const double now = seconds_now();
  const double before = std::exchange(end_, now);
  communicated_ = watch::seconds_communicating();
  RankTimes one = std::exchange(after_, RankTimes());
  if (before == 0.0) return;
  one.step = now - before;
  std::array<double, all_parts + 1> seconds{};
  for (std::size_t a = 0; a < times.size(); ++a)
    seconds[static_cast<std::size_t>(part_of(program.plan.actions[a]))] +=
        times[a].end - times[a].begin;
  for (std::size_t p = 0; p < one.of_part.size(); ++p) one.of_part[p] += seconds[p];
  sums_.add(one);
  ++steps_;
}

RankTimes RankTimer::take() {
  RankTimes means;
  means.add(std::exchange(sums_, RankTimes()), 1.0 / static_cast<double>(std::exchange(steps_, 0)));
  return means;
}

}  // namespace ostrakon::train
