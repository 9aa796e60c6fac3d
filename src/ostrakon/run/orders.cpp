// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/orders.hpp>

#include <filesystem>
#include <ostrakon/base/error.hpp>

namespace ostrakon::train {
namespace {

std::string file_to_watch(const config::Settings& settings, bool is_root) {
  if (!is_root) return "";
  return (std::filesystem::path(settings.output.directory) / "checkpoint_now").string();
}

}  // namespace

StepEnd end_of_step(std::int64_t step, std::int64_t steps, const Orders& orders) {
  StepEnd end;
  end.step = step;
  end.is_last = step == steps || orders.out_of_time || orders.stop;
  end.stops = orders.stop && step < steps;
  return end;
}

std::string describe_early_end(const StepEnd& end, const Orders& orders,
                               const config::TrainingSettings& training) {
  if (!end.is_last || end.step == training.steps) return "";
  if (!end.stops)
    return text("stopped after training.time_limit_minutes = ", training.time_limit_minutes,
                ", at step ", end.step, " of ", training.steps, "\n");
  return text("stopped at step ", end.step, " of ", training.steps,
              orders.at_wall_time ? ", as runtime.wall_time ends" : ", as requested by a signal",
              "; --resume auto resumes it\n");
}

double seconds_to_stop(double longest_step, double saving) {
  return 1.0 + 1.5 * (longest_step + saving);
}

StopRequests::StopRequests(const config::Settings& settings, comm::Communicator& world)
    : world_(world),
      is_root_(world.rank() == 0),
      wall_time_(settings.runtime.wall_time),
      time_limit_(60.0 * settings.training.time_limit_minutes),
      triggers_(file_to_watch(settings, is_root_)) {}

Orders StopRequests::take(double training_seconds, double seconds_to_stop, bool is_writing) {
  const Triggers::Requests asked = triggers_.take();
  const bool over = is_root_ && time_limit_ > 0.0 && training_seconds >= time_limit_;
  const bool at_wall_time =
      is_root_ && wall_time_ > 0.0 && seconds_since_start() + seconds_to_stop >= wall_time_;
  double any[] = {asked.save ? 1.0 : 0.0, asked.stop ? 1.0 : 0.0, at_wall_time ? 1.0 : 0.0,
                  over ? 1.0 : 0.0, is_writing ? 1.0 : 0.0};
  world_.maximum(any, 5);
  Orders orders;
  orders.save = any[0] > 0.0;
  orders.at_wall_time = any[2] > 0.0;
  orders.stop = any[1] > 0.0 || orders.at_wall_time;
  orders.out_of_time = any[3] > 0.0;
  orders.is_writing = any[4] > 0.0;
  return orders;
}

bool StopRequests::wants_stop(bool has_steps) {
  double asked = Triggers::wants_stop() && has_steps ? 1.0 : 0.0;
  world_.maximum(&asked, 1);
  return asked > 0.0;
}

}  // namespace ostrakon::train
