// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <ostrakon/run/resume_loader.hpp>
#include <ostrakon/saving/saver.hpp>
#include <sstream>

#include "support/shared_folder.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::read_bytes;
using testing::SharedFolder;
using testing::write_bytes;
using train::Resume;
using train::ResumeLoader;

/// A run that has saved checkpoints of its steps 1 and 2, and another that may resume from them.
class ResumeLoaderTest : public ::testing::Test {
 protected:
  ResumeLoaderTest() {
    settings_ = small_gpt2(2);
    settings_.output.directory = folder_.file("run");
    settings_.checkpoint.every = 1;
    settings_.checkpoint.asynchronous = false;
  }

  void save_two() {
    SmallRun run(settings_);
    train::Saver saver(settings_, run.mesh, run.trainer);
    saver.describe_data(run.training->identity());
    for (int step = 1; step <= 2; ++step) {
      run.step(step);
      checkpoint::Progress progress = run.trainer.progress();
      progress.skipped_in_a_row = 7;
      saver.begin(progress, run.training->tokenizer(), false);
      saver.finish();
      digests_[step] = run.trainer.state_digest();
    }
  }
  std::string place(const std::string& name) const {
    return folder_.file("run/checkpoints/" + name);
  }
  /// On one rank, before what follows on all.
  template <class Work>
  void on_root(const Work& work) {
    comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
    world.run_on_root(work);
  }
  /// Changes a byte in the middle of a file.
  static void damage(const std::string& path) {
    std::string bytes = read_bytes(path);
    char& byte = bytes.at(bytes.size() / 2);
    byte = static_cast<char>(byte ^ 1);
    write_bytes(path, bytes);
  }

  /// A run that resumes, with its output.
  struct Resumer {
    Resumer(const config::Settings& settings, const train::RunOptions& chosen)
        : options(chosen),
          run(settings),
          own(settings.output.directory + "/checkpoints"),
          console(out, {run.mesh.world().rank() == 0, false, 1, 1}),
          loader(settings, options, run.mesh, own, console) {}
    ResumeLoader::Loaded load() { return loader.load(run.trainer, *run.training); }
    void tidy(const ResumeLoader::Loaded& loaded) {
      run.mesh.world().run_on_root([&] { loader.tidy(loaded); });
    }
    bool says(const std::string& words) const {
      return !console.is_root() || out.str().find(words) != std::string::npos;
    }

    const train::RunOptions options;
    SmallRun run;
    checkpoint::Folder own;
    std::ostringstream out;
    train::Console console;
    ResumeLoader loader;
  };
  static train::RunOptions resume(Resume from, const std::string& checkpoint = "") {
    train::RunOptions options;
    options.resume = from;
    options.checkpoint = checkpoint;
    return options;
  }

  SharedFolder folder_;
  config::Settings settings_;
  std::uint64_t digests_[3] = {};
};

TEST_F(ResumeLoaderTest, WithoutCheckpointsARunBeginsAtStep1) {
  Resumer resumer(settings_, resume(Resume::automatic));
  resumer.loader.find();
  EXPECT_FALSE(resumer.loader.has_found());
  EXPECT_TRUE(resumer.says("none yet: begins at step 1"));
  resumer.loader.require_none_since(resumer.console.is_root());
  save_two();
  EXPECT_NO_THROW(resumer.loader.require_none_since(false));
  const std::string error =
      error_of([&] { resumer.loader.require_none_since(resumer.console.is_root()); });
  EXPECT_EQ(error.find("another run has saved into "), 0u) << error;
}

TEST_F(ResumeLoaderTest, TakesTheNewest) {
  save_two();
  Resumer resumer(settings_, resume(Resume::automatic));
  resumer.loader.find();
  ASSERT_TRUE(resumer.loader.has_found());
  const ResumeLoader::Loaded loaded = resumer.load();
  EXPECT_EQ(loaded.step, 2);
  EXPECT_EQ(resumer.run.trainer.skipped().in_a_row(), 7);
  EXPECT_TRUE(loaded.is_own);
  EXPECT_TRUE(loaded.is_saved);
  EXPECT_EQ(resumer.run.trainer.state_digest(), digests_[2]);
  EXPECT_TRUE(resumer.says(", step 2 of 20, saved by "));
}

TEST_F(ResumeLoaderTest, TakesTheOneThatIsNamed) {
  save_two();
  settings_.output.directory = folder_.file("another");
  Resumer resumer(settings_, resume(Resume::path, place("step-00000001")));
  resumer.loader.find();
  const ResumeLoader::Loaded loaded = resumer.load();
  EXPECT_EQ(loaded.step, 1);
  EXPECT_FALSE(loaded.is_own);
  EXPECT_FALSE(loaded.is_saved);
  EXPECT_EQ(resumer.run.trainer.state_digest(), digests_[1]);
}

TEST_F(ResumeLoaderTest, ADamagedManifestMakesRoomForAnOlderCheckpoint) {
  save_two();
  on_root([&] { damage(place("step-00000002/manifest.json")); });
  Resumer resumer(settings_, resume(Resume::automatic));
  resumer.loader.find();
  EXPECT_TRUE(resumer.says("damaged: "));
  const ResumeLoader::Loaded loaded = resumer.load();
  EXPECT_EQ(loaded.step, 1);
  EXPECT_EQ(resumer.run.trainer.state_digest(), digests_[1]);
  resumer.tidy(loaded);
  EXPECT_TRUE(fs::exists(place("step-00000002.damaged")));
  EXPECT_EQ(fs::read_symlink(place("latest")), "step-00000001");
}

TEST_F(ResumeLoaderTest, SoDoDamagedNumbers) {
  save_two();
  on_root([&] { damage(place("step-00000002/rank-00000.h5")); });
  Resumer resumer(settings_, resume(Resume::automatic));
  resumer.loader.find();
  EXPECT_FALSE(resumer.console.is_root() && resumer.says("damaged: "));  // not known yet
  const ResumeLoader::Loaded loaded = resumer.load();
  EXPECT_TRUE(resumer.says("damaged: "));
  EXPECT_EQ(loaded.step, 1);
  EXPECT_EQ(resumer.run.trainer.state_digest(), digests_[1]);
  resumer.tidy(loaded);
  EXPECT_TRUE(fs::exists(place("step-00000002.damaged")));
}

TEST_F(ResumeLoaderTest, ADamagedOneThatIsNamedIsRefused) {
  save_two();
  on_root([&] { damage(place("step-00000002/rank-00000.h5")); });
  Resumer resumer(settings_, resume(Resume::path, place("step-00000002")));
  resumer.loader.find();
  EXPECT_THROW(resumer.load(), CollectiveDamagedError);
}

TEST_F(ResumeLoaderTest, RefusesToBeginWhereAllAreDamaged) {
  save_two();
  on_root([&] {
    damage(place("step-00000001/manifest.json"));
    damage(place("step-00000002/manifest.json"));
  });
  Resumer resumer(settings_, resume(Resume::automatic));
  const std::string error = error_of([&] { resumer.loader.find(); });
  EXPECT_EQ(error, "no checkpoint in " + place("").substr(0, place("").size() - 1) +
                       " can be used; --resume none begins at step 1 and renames them");
}

TEST_F(ResumeLoaderTest, RefusesAnotherModel) {
  save_two();
  settings_.model.ffn_width += 4;
  Resumer resumer(settings_, resume(Resume::automatic));
  resumer.loader.find();
  const std::string error = error_of([&] { resumer.load(); });
  EXPECT_HAS(error, "step-00000002 does not fit the deck: ");
}

TEST_F(ResumeLoaderTest, ARunFromTheStartSetsCheckpointsAside) {
  save_two();
  Resumer resumer(settings_, resume(Resume::none));
  resumer.loader.find();
  EXPECT_FALSE(resumer.loader.has_found());
  resumer.tidy({});
  EXPECT_FALSE(fs::exists(place("step-00000002")));
  EXPECT_TRUE(fs::exists(folder_.file("run/checkpoints.previous/step-00000002")));
  EXPECT_TRUE(resumer.says("checkpoints of an earlier run are in "));
}

}  // namespace
}  // namespace ostrakon::tests
