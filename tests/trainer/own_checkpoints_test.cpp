// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a chain of units of one's own.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/training.hpp>
#include <string>
#include <utility>

#include "support/damage.hpp"
#include "support/shared_folder.hpp"
#include "trainer/own_model_runs.hpp"

namespace ostrakon::tests {
namespace {

namespace fs = std::filesystem;

/// A trainer with its checkpoints.
struct Saved {
  template <class Samples = SmallSamples>
  explicit Saved(const std::string& folder, TrainerSettings settings = plain_settings(),
                 const Samples& given = Samples(), Chain<float> chain = small_chain<float>())
      : samples(std::make_shared<Samples>(given)),
        trainer(make_model(std::move(chain)), settings, mesh),
        checkpoints(options_of(folder), mesh, trainer, *samples) {
    trainer.allocate();
  }
  CheckpointOptions options_of(const std::string& folder) {
    CheckpointOptions options;
    options.folder = folder;
    options.tell = [this](const std::string& line) { told += line + "\n"; };
    return options;
  }
  /// Takes steps up to `last`, saving after each.
  void save_steps(std::int64_t last) {
    for (std::int64_t step = trainer.progress().step + 1; step <= last; ++step) {
      train_steps(trainer, step, step);
      checkpoints.save();
    }
  }
  /// On rank 0, which is the one that is told.
  bool says(const std::string& words) {
    return mesh.world().rank() != 0 || told.find(words) != std::string::npos;
  }
  std::string told;
  std::shared_ptr<SampleSource> samples;
  Mesh mesh{MPI_COMM_WORLD};
  Trainer trainer;
  Checkpoints checkpoints;
};

/// A run that saves after each of so many steps, and ends.
template <class Samples = SmallSamples>
void save_run(const std::string& folder, std::int64_t steps, const Samples& samples = Samples()) {
  Saved run(folder, plain_settings(), samples);
  run.trainer.initialize();
  run.save_steps(steps);
}

TEST(Checkpoints, ResumeWithTheSameBits) {
  for (const bool in_background : {false, true}) {
    const testing::SharedFolder folder;
    TrainerSettings settings = plain_settings();
    settings.checkpoint_staging = in_background;
    SmallSamples samples;
    {
      Saved run(folder.path(), settings);
      EXPECT_EQ(run.checkpoints.resume(), 0);
      run.trainer.initialize();
      for (std::int64_t step = 1; step <= 5; ++step) {
        run.trainer.step(samples, step);
        run.checkpoints.advance();
        if (step == 3) run.checkpoints.save();
      }
      run.checkpoints.finish();
      EXPECT_EQ(run.checkpoints.saved_step(), 3);
    }
    settings.policy.sharding = plan::Sharding::none;
    Saved run(folder.path(), settings);
    ASSERT_EQ(run.checkpoints.resume(), 3);
    EXPECT_EQ(testing::error_of([&] { run.trainer.step(samples, 3); }),
              "Trainer::step was called with step 3; expected step 4: one after the other");
    EXPECT_EQ(train_steps(run.trainer, 4, 8).digest, reference().digest);
  }
}

TEST(Checkpoints, ResumeAModelWithATiedTable) {
  const testing::SharedFolder folder;
  {
    Saved run(folder.path(), plain_settings(), SmallTokens(), tied_chain<float>());
    run.trainer.initialize();
    train_steps(run.trainer, 1, 3, SmallTokens());
    run.checkpoints.save();
  }
  TrainerSettings settings = plain_settings();
  settings.policy.sharding = plan::Sharding::none;
  Saved run(folder.path(), settings, SmallTokens(), tied_chain<float>());
  ASSERT_EQ(run.checkpoints.resume(), 3);
  EXPECT_EQ(train_steps(run.trainer, 4, 8, SmallTokens()).digest, tied_reference().digest);
}

class OtherData : public SmallSamples {
 public:
  Facts identity() const override { return {{"data", "cosines"}}; }
};

TEST(Checkpoints, OfAnotherRunAreRefused) {
  const testing::SharedFolder folder;
  save_run(folder.path(), 1);
  Saved other_data(folder.path(), plain_settings(), OtherData());
  const std::string path = folder.path() + "/step-00000001";
  EXPECT_EQ(testing::error_of([&] { other_data.checkpoints.resume(); }),
            "checkpoint " + path +
                " does not fit: the data of its training data was sines, and is cosines now");
  TrainerSettings settings = plain_settings();
  settings.optimizer.kind = OptimizerKind::lion;
  Saved other_optimizer(folder.path(), settings);
  EXPECT_EQ(testing::error_of([&] { other_optimizer.checkpoints.resume(); }),
            "checkpoint " + path + " does not fit: its optimizer is adamw, not lion");
}

TEST(Checkpoints, OfAnEarlierRunAreSetAside) {
  const testing::SharedFolder folder;
  const std::string used = folder.path() + "/checkpoints";
  save_run(used, 3);
  std::uint64_t digest = 0;
  {
    Saved run(used);
    run.trainer.initialize();
    run.save_steps(1);
    EXPECT_EQ(run.checkpoints.set_aside(), used + ".previous");
    digest = run.trainer.state_digest();
  }
  {
    Saved run(used);
    EXPECT_EQ(run.checkpoints.resume(), 1);
    EXPECT_EQ(run.trainer.state_digest(), digest);
    run.save_steps(2);
    EXPECT_EQ(run.checkpoints.set_aside(), "");
  }
  Saved earlier(used + ".previous");
  EXPECT_EQ(earlier.checkpoints.resume(), 3);
}

/// Data that is another one on the last rank.
class DataOfRank : public SmallSamples {
 public:
  explicit DataOfRank(bool is_other) : is_other_(is_other) {}
  Facts identity() const override { return {{"data", is_other_ ? "cosines" : "sines"}}; }

 private:
  bool is_other_;
};

TEST(Checkpoints, OfDifferentDataOnRanksAreRefused) {
  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  if (world.size() == 1) GTEST_SKIP() << "needs others";
  const testing::SharedFolder folder;
  const DataOfRank samples(world.rank() + 1 == world.size());
  const std::string message =
      testing::error_of([&] { Saved(folder.path(), plain_settings(), samples); });
  EXPECT_EQ(message.rfind("ranks have different training data: the data is cosines on rank ", 0),
            0u)
      << message;
}

/// What rank 0 does to files, before what follows on all.
void on_root(const std::function<void()>& work) {
  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  world.run_on_root(work);
}

TEST(Checkpoints, DamagedOnesAreToldRenamedAndLeftForOlderOnes) {
  const testing::SharedFolder folder;
  save_run(folder.path(), 2);
  on_root([&] { testing::damage(folder.path() + "/step-00000002/manifest.json"); });
  Saved next(folder.path());
  EXPECT_EQ(next.checkpoints.resume(), 1);
  EXPECT_TRUE(next.says("damaged: ")) << next.told;
  EXPECT_TRUE(next.says("renamed to " + folder.path() + "/step-00000002.damaged\n")) << next.told;
  on_root([&] { EXPECT_TRUE(fs::exists(folder.path() + "/step-00000002.damaged")); });
  EXPECT_EQ(train_steps(next.trainer, 2, 8).digest, reference().digest);
  on_root([&] { testing::damage(folder.path() + "/step-00000001/manifest.json"); });
  Saved last(folder.path());
  const std::string message = testing::error_of([&] { last.checkpoints.resume(); });
  EXPECT_EQ(message.rfind("all checkpoints in " + folder.path() + " are damaged: ", 0), 0u);
  EXPECT_HAS(message, "step-00000001");
}

TEST(Checkpoints, AfterAFailedStepThatOfTheLastGoodOneIsSaved) {
  const testing::SharedFolder folder;
  Saved run(folder.path());
  run.trainer.initialize();
  train_steps(run.trainer, 1, 1);
  run.trainer.inject_nonfinite(2, 0);
  EXPECT_THROW(train_steps(run.trainer, 2, 2), CollectiveError);
  EXPECT_EQ(run.trainer.progress().step, 1);
  run.checkpoints.save();
  EXPECT_EQ(run.checkpoints.saved_step(), 1);
  Saved resumed(folder.path());
  EXPECT_EQ(resumed.checkpoints.resume(), 1);
  EXPECT_EQ(resumed.trainer.state_digest(), run.trainer.state_digest());
  // And it can be tried again.
  EXPECT_EQ(train_steps(run.trainer, 2, 8).digest, reference().digest);
}

TEST(Checkpoints, AreNotMadeOfParametersOfTwoSteps) {
  TrainerSettings settings = plain_settings();
  settings.policy.offload = plan::Offload::all;
  settings.optimizer.clip_norm = 0.0;
  const testing::SharedFolder folder;
  Saved run(folder.path(), settings);
  run.trainer.initialize();
  run.save_steps(1);
  const std::uint64_t digest = run.trainer.state_digest();
  run.trainer.inject_nonfinite(2, 0);
  EXPECT_THROW(train_steps(run.trainer, 2, 2), CollectiveError);
  ASSERT_FALSE(run.trainer.is_intact());
  const std::string message = testing::error_of([&] { run.checkpoints.save(); });
  EXPECT_EQ(message.rfind("Checkpoints::save was called after a step that failed", 0), 0u)
      << message;
  EXPECT_EQ(run.checkpoints.resume(), 1);
  EXPECT_TRUE(run.trainer.is_intact());
  EXPECT_EQ(run.trainer.state_digest(), digest);
  run.save_steps(2);
  EXPECT_EQ(run.checkpoints.saved_step(), 2);
}

TEST(Checkpoints, OfMoreStepsOrALaterProgramAreRefused) {
  const testing::SharedFolder folder;
  save_run(folder.path(), 2);
  const std::string path = folder.path() + "/step-00000002";
  TrainerSettings settings = plain_settings();
  settings.steps = 1;
  Saved shorter(folder.path(), settings);
  EXPECT_EQ(testing::error_of([&] { shorter.checkpoints.resume(); }),
            "checkpoint " + path +
                " does not fit: it has done 2 steps, more than settings.steps = 1; expected at "
                "least as many, or no resume() to begin anew");
  on_root([&] {
    checkpoint::Manifest manifest =
        checkpoint::read_manifest(checkpoint::load_manifest(path), path);
    manifest.program = "Ostrakon 99.0.0";
    testing::write_bytes(path + "/manifest.json", checkpoint::write_manifest(manifest));
  });
  Saved earlier(folder.path());
  const std::string message = testing::error_of([&] { earlier.checkpoints.resume(); });
  EXPECT_HAS(message, "it was saved by Ostrakon 99.0.0; this is ");
}

class DataWithoutIdentity : public SmallSamples {
 public:
  Facts identity() const override { return {}; }
};

TEST(Checkpoints, TellWhereDataCannotBeCompared) {
  const testing::SharedFolder folder;
  save_run(folder.path(), 1, DataWithoutIdentity());
  Saved run(folder.path());
  EXPECT_EQ(run.checkpoints.resume(), 1);
  EXPECT_TRUE(run.says("does not say what data it was trained on")) << run.told;
  run.save_steps(2);
  Saved without(folder.path(), plain_settings(), DataWithoutIdentity());
  EXPECT_EQ(without.checkpoints.resume(), 2);
  EXPECT_TRUE(without.says("the samples have no identity()")) << without.told;
}

TEST(Checkpoints, AreFinishedWhereALaterStepFails) {
  const testing::SharedFolder folder;
  TrainerSettings settings = plain_settings();
  settings.checkpoint_staging = true;
  std::uint64_t digest = 0;
  {
    Saved run(folder.path(), settings);
    run.trainer.initialize();
    const auto steps = [&] {
      run.save_steps(1);
      digest = run.trainer.state_digest();
      run.trainer.inject_nonfinite(2, 0);
      train_steps(run.trainer, 2, 2);
    };
    const std::string message = testing::error_of([&] { run.checkpoints.finish_after(steps); });
    EXPECT_HAS(message, "the gradient of bend.1 is not finite");
    EXPECT_EQ(run.checkpoints.saved_step(), 1);
  }
  Saved run(folder.path(), settings);
  ASSERT_EQ(run.checkpoints.resume(), 1);
  EXPECT_EQ(run.trainer.state_digest(), digest);
  run.checkpoints.finish_after([&] { run.save_steps(2); });
  EXPECT_EQ(run.checkpoints.saved_step(), 2);
}

TEST(Checkpoints, OfAStepThatIsSavedAreNotSavedAgain) {
  const testing::SharedFolder folder;
  {
    Saved run(folder.path());
    run.trainer.initialize();
    run.save_steps(1);
    run.checkpoints.save();
  }
  Saved run(folder.path());
  ASSERT_EQ(run.checkpoints.resume(), 1);
  run.checkpoints.save();
  EXPECT_FALSE(fs::exists(folder.path() + "/step-00000001.previous"));
}

// Before training begins, not when hours later the first one is saved.
TEST(Checkpoints, OfAFolderThatCannotBeAreRefused) {
  const testing::SharedFolder shared;
  const std::string file = shared.file("file"), link = shared.file("link");
  on_root([&] {
    testing::write_bytes(file, "text");
    fs::create_symlink(shared.file("nowhere"), link);
  });
  const auto refusal = [](const std::string& folder) {
    bool is_agreed = false;
    const std::string message = testing::error_of([&] {
      try {
        Saved run(folder);
      } catch (const CollectiveError&) {
        is_agreed = true;
        throw;
      }
    });
    EXPECT_EQ(is_agreed, message != "no error");
    const std::size_t begin = message.find('\'');  // after the rank and its host
    return begin == std::string::npos ? message : message.substr(begin);
  };
  const std::string refused = "' can't be a folder of checkpoints: ";
  EXPECT_EQ(refusal(file), "'" + file + refused + "'" + file + "' is no folder");
  EXPECT_EQ(refusal(file + "/a/b/"), "'" + file + "/a/b" + refused + "'" + file + "' is no folder");
  EXPECT_EQ(refusal(link), "'" + link + refused + "'" + link +
                               "' is a link whose target does not exist, or is not mounted on "
                               "this host");
  if (fs::exists("/proc/self")) {
    const std::string message = refusal("/proc/no/checkpoints");
    EXPECT_EQ(message.rfind("'/proc/no/checkpoints" + refused + "it can't be made: ", 0), 0u)
        << message;
  }
  // Nothing is left of one that is not there yet.
  EXPECT_EQ(refusal(shared.file("a/b")), "no error");
  EXPECT_FALSE(fs::exists(shared.file("a")));
}

TEST(Checkpoints, TellWhatASaveCouldNotDo) {
  const testing::SharedFolder folder;
  Saved run(folder.path());
  run.trainer.initialize();
  run.save_steps(1);
  on_root([&] {
    fs::remove(folder.path() + "/latest");
    fs::create_directories(folder.path() + "/latest/taken");
  });
  run.save_steps(2);
  EXPECT_EQ(run.checkpoints.saved_step(), 2);
  EXPECT_TRUE(run.says("checkpoint " + folder.path() + "/step-00000002: ")) << run.told;
}

}  // namespace
}  // namespace ostrakon::tests
