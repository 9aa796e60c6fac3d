// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <ostrakon/run/stop_requests.hpp>

#include "support/shared_folder.hpp"

namespace ostrakon::train {
namespace {

using testing::SharedFolder;
using testing::write_bytes;

comm::Communicator make_world() { return comm::Communicator::duplicate(MPI_COMM_WORLD); }

TEST(EndOfStep, IsTheLastOneOfTrainingOrAsOrdered) {
  struct Case {
    std::int64_t step;
    bool stop, out_of_time, is_last, stops;
  };
  const Case cases[] = {{3, false, false, false, false}, {9, false, false, true, false},
                        {3, true, false, true, true},    {9, true, false, true, false},
                        {3, false, true, true, false},   {9, false, true, true, false},
                        {3, true, true, true, true}};
  for (const Case& one : cases) {
    Requests requests;
    requests.stop = one.stop;
    requests.out_of_time = one.out_of_time;
    const StepEnd end = end_of_step(one.step, 9, requests);
    EXPECT_EQ(end.step, one.step);
    EXPECT_EQ(end.is_last, one.is_last);
    EXPECT_EQ(end.stops, one.stops);
  }
}

TEST(EndOfStep, EarlyEndsHaveTheirReason) {
  config::TrainingSettings training;
  training.steps = 9;
  training.time_limit_minutes = 2.0;
  const auto described = [&](std::int64_t step, const Requests& requests) {
    return describe_early_end(end_of_step(step, training.steps, requests), requests, training);
  };
  Requests requests;
  EXPECT_EQ(described(3, requests), "");
  EXPECT_EQ(described(9, requests), "");
  requests.out_of_time = true;
  EXPECT_EQ(described(3, requests),
            "stopped after training.time_limit_minutes = 2, at step 3 of 9\n");
  requests.stop = true;
  EXPECT_EQ(described(3, requests),
            "stopped at step 3 of 9, as requested by a signal; --resume auto resumes it\n");
  requests.at_wall_time = true;
  EXPECT_EQ(described(3, requests),
            "stopped at step 3 of 9, as runtime.wall_time ends; --resume auto resumes it\n");
  EXPECT_EQ(described(9, requests), "");
}

TEST(SecondsToStop, AreMoreThanAStepAndTheSaves) {
  EXPECT_DOUBLE_EQ(seconds_to_stop(0.0, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(seconds_to_stop(2.0, 4.0), 10.0);
}

TEST(StopRequests, TellsAllRanksWhatOneWasAsked) {
  note_signals();
  comm::Communicator world = make_world();
  const bool is_last_rank = world.rank() == world.size() - 1;
  StopRequests taker(config::Settings(), world);
  Requests requests = taker.take(0.0, 0.0, false);
  EXPECT_FALSE(requests.save || requests.stop || requests.is_writing || requests.out_of_time);

  if (is_last_rank) std::raise(SIGUSR1);
  requests = taker.take(0.0, 0.0, is_last_rank);
  EXPECT_TRUE(requests.save);
  EXPECT_FALSE(requests.stop);
  EXPECT_TRUE(requests.is_writing);

  if (is_last_rank) std::raise(SIGTERM);
  EXPECT_TRUE(taker.wants_stop(true));
  EXPECT_FALSE(taker.wants_stop(false));  // there is nothing to stop before
  requests = taker.take(0.0, 0.0, false);
  EXPECT_TRUE(requests.stop);
  EXPECT_FALSE(requests.save || requests.at_wall_time || requests.is_writing);
  EXPECT_FALSE(taker.wants_stop(true));
  EXPECT_FALSE(taker.take(0.0, 0.0, false).stop);
}

TEST(StopRequests, SeesTheFileThatAsksForACheckpoint) {
  comm::Communicator world = make_world();
  const SharedFolder folder;
  config::Settings settings;
  settings.output.directory = folder.path();
  StopRequests taker(settings, world);
  const std::string file = folder.file("checkpoint_now");
  if (world.rank() == 0) write_bytes(file, "");
  EXPECT_TRUE(taker.take(0.0, 0.0, false).save);
  world.barrier();
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_FALSE(taker.take(0.0, 0.0, false).save);
}

TEST(StopRequests, StopsBeforeWallTimeByTheClockOfRank0) {
  comm::Communicator world = make_world();
  config::Settings settings;
  settings.runtime.wall_time = seconds_since_start() + 1000.0;
  StopRequests taker(settings, world);
  EXPECT_FALSE(taker.take(0.0, 10.0, false).stop);
  EXPECT_FALSE(taker.take(0.0, world.rank() == 0 ? 10.0 : 2000.0, false).stop);
  const Requests requests = taker.take(0.0, world.rank() == 0 ? 2000.0 : 10.0, false);
  EXPECT_TRUE(requests.stop);
  EXPECT_TRUE(requests.at_wall_time);
  EXPECT_FALSE(requests.out_of_time);
}

TEST(StopRequests, EndsTrainingAfterTheTimeLimit) {
  comm::Communicator world = make_world();
  config::Settings settings;
  settings.training.time_limit_minutes = 2.0;
  StopRequests taker(settings, world);
  EXPECT_FALSE(taker.take(119.9, 0.0, false).out_of_time);
  EXPECT_FALSE(taker.take(world.rank() == 0 ? 119.9 : 121.0, 0.0, false).out_of_time);
  const Requests requests = taker.take(120.0, 0.0, false);
  EXPECT_TRUE(requests.out_of_time);
  EXPECT_FALSE(requests.stop);
}

}  // namespace
}  // namespace ostrakon::train
