// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/stop_requests.hpp>

#include <filesystem>
#include <ostrakon/base/error.hpp>

namespace ostrakon::train {
namespace {

std::string file_to_watch(const config::Settings& settings, bool is_root) {
  if (!is_root) return "";
  return (std::filesystem::path(settings.output.directory) / "checkpoint_now").string();
}

}  // namespace

StepEnd end_of_step(std::int64_t step, std::int64_t steps, const Requests& requests) {
  StepEnd end;
  end.step = step;
  end.is_last = step == steps || requests.out_of_time || requests.stop;
  end.stops = requests.stop && step < steps;
  return end;
}

std::string describe_early_end(const StepEnd& end, const Requests& requests,
                               const config::TrainingSettings& training) {
  if (!end.is_last || end.step == training.steps) return "";
  if (!end.stops)
    return text("stopped after training.time_limit_minutes = ", training.time_limit_minutes,
                ", at step ", end.step, " of ", training.steps, "\n");
  return text("stopped at step ", end.step, " of ", training.steps,
              requests.at_wall_time ? ", as runtime.wall_time ends" : ", as requested by a signal",
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
      signals_(file_to_watch(settings, is_root_)) {}

Requests StopRequests::take(double training_seconds, double seconds_to_stop, bool is_writing) {
  const SignalRequests::Found asked = signals_.take();
  const bool over = is_root_ && time_limit_ > 0.0 && training_seconds >= time_limit_;
  const bool at_wall_time =
      is_root_ && wall_time_ > 0.0 && seconds_since_start() + seconds_to_stop >= wall_time_;
  double any[] = {asked.save ? 1.0 : 0.0, asked.stop ? 1.0 : 0.0, at_wall_time ? 1.0 : 0.0,
                  over ? 1.0 : 0.0, is_writing ? 1.0 : 0.0};
  world_.all_reduce_max(any, 5);
  Requests requests;
  requests.save = any[0] > 0.0;
  requests.at_wall_time = any[2] > 0.0;
  requests.stop = any[1] > 0.0 || requests.at_wall_time;
  requests.out_of_time = any[3] > 0.0;
  requests.is_writing = any[4] > 0.0;
  return requests;
}

bool StopRequests::wants_stop(bool has_steps) {
  double asked = SignalRequests::wants_stop() && has_steps ? 1.0 : 0.0;
  world_.all_reduce_max(&asked, 1);
  return asked > 0.0;
}

}  // namespace ostrakon::train
