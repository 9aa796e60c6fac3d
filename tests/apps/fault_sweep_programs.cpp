// SPDX-License-Identifier: Apache-2.0
#include "fault_sweep_programs.hpp"

#include <exception>
#include <ostrakon/checkpoint/folder.hpp>
#include <stdexcept>

#include "fault_sweep_checks.hpp"

namespace ostrakon::testing {

namespace fs = std::filesystem;

namespace {

const char* const first_checkpoint = "step-00000002";

/// The checkpoint of an earlier run has its name, or that which such a one gets.
void keep_checkpoint(const fs::path& folder, const fs::path& before) {
  const fs::path expected = before / "run/checkpoints" / first_checkpoint;
  for (const char* place : {"checkpoints", "checkpoints.previous"})
    for (const fs::path& found : {folder / "run" / place / first_checkpoint,
                                  folder / "run" / place / first_checkpoint += ".previous"})
      if (holds_files_of(found, expected)) return;
  throw std::runtime_error("the checkpoint from before is gone, or not as it was");
}

void keep_weights(const fs::path& folder, const fs::path& before) {
  for (const fs::path& found : entries(folder / "run", "weights."))
    if (found.extension() == ".h5" && are_same_files(found, before / "run/weights.h5")) return;
  throw std::runtime_error("the weights from before are gone, or not as they were");
}

void keep_inputs(const fs::path& folder, const fs::path& before) {
  for (const auto& entry : fs::directory_iterator(before)) {
    const fs::path found = folder / entry.path().filename();
    expect(entry.is_directory() ? fs::is_empty(entry) || holds_files_of(found, entry)
                                : are_same_files(found, entry),
           found.filename().string() + " is not as it was");
  }
}

}  // namespace

void keep_checkpoint_in_place(const fs::path& folder, const fs::path& before) {
  const fs::path place = fs::path("run/checkpoints") / first_checkpoint;
  expect(holds_files_of(folder / place, before / place),
         "the checkpoint to go on from is gone, or not as it was");
}

void verify_results(const fs::path& folder, const fs::path& reference, std::int64_t steps) {
  const fs::path run = folder / "run";
  compare_weights(run / "weights.h5", reference / "run/weights.h5");
  for (const fs::path& found : entries(run / "checkpoints", "step-")) verify_checkpoint(found);
  expect(fs::exists(run / "checkpoints" / checkpoint::folder_name(steps)),
         "the last checkpoint is missing");
  expect(fs::file_size(run / "deck.yaml") > 0, "deck.yaml is empty");
  verify_json(run / "plan.json");
  verify_metrics(run / "metrics.jsonl", steps);
}

std::int64_t newest_step(const fs::path& folder, std::int64_t steps) {
  for (std::int64_t step = steps; step > 0; --step) {
    const fs::path path = folder / "run/checkpoints" / checkpoint::folder_name(step);
    try {
      if (fs::exists(path)) {
        verify_checkpoint(path);
        return step;
      }
    } catch (const std::exception&) {
    }
  }
  return 0;
}

namespace {

constexpr std::int64_t train_steps = 3;

FileCheck verify_run(std::int64_t steps) {
  return [steps](const fs::path& folder, const fs::path& reference) {
    verify_results(folder, reference, steps);
    verify_json(folder / "run/trace.json");
  };
}

FaultyProgram train(const std::string& name, int ranks, const std::string& faulty_rank) {
  return {name,
          {"ostrakon-train", "@/deck.yaml", "--set", "output.directory=@/run", "--set",
           "data.path=@/tokens-train.h5", "--set", "data.validation_path=@/tokens-validation.h5"},
          ranks,
          faulty_rank,
          verify_run(train_steps),
          [](const fs::path& folder, const fs::path& before) {
            keep_checkpoint(folder, before);
            keep_weights(folder, before);
          }};
}

FaultyProgram resume(const std::string& name, int ranks, const std::string& faulty_rank) {
  FaultyProgram program = train(name, ranks, faulty_rank);
  program.arguments.insert(
      program.arguments.end(),
      {"--set", "training.steps=" + std::to_string(resume_steps), "--resume", "auto"});
  program.verify = verify_run(resume_steps);
  program.keep = [](const fs::path& folder, const fs::path& before) {
    keep_checkpoint_in_place(folder, before);
    keep_weights(folder, before);
  };
  program.goes_on = true;
  return program;
}

}  // namespace

std::vector<FaultyProgram> programs() {
  return {
      train("train_1_rank", 1, ""),
      train("train_2_ranks_first_fails", 2, "0"),
      train("train_2_ranks_second_fails", 2, "1"),
      resume("resume_1_rank", 1, ""),
      resume("resume_2_ranks_first_fails", 2, "0"),
      resume("resume_2_ranks_second_fails", 2, "1"),
      {"data_build",
       {"ostrakon-data", "build", "@/text", "--separator", "--", "--output", "@/out/new",
        "--validation-fraction", "0.5"},
       1,
       "",
       [](const fs::path& folder, const fs::path& reference) {
         for (const char* name : {"out/new-train.h5", "out/new-validation.h5"})
           compare_tokens(folder / name, reference / name);
       },
       keep_inputs},
      {"data_import",
       {"ostrakon-data", "import", "@/ids", "--vocabulary", "512", "--end-of-text", "0",
        "--token-bytes", "@/bytes", "--output", "@/out/ids.h5"},
       1,
       "",
       [](const fs::path& folder, const fs::path& reference) {
         compare_tokens(folder / "out/ids.h5", reference / "out/ids.h5");
       },
       keep_inputs},
      {"checkpoint_export",
       {"ostrakon-checkpoint", "export", "@/run/checkpoints/step-00000002", "@/out/exported"},
       1,
       "",
       [](const fs::path& folder, const fs::path& reference) {
         for (const char* name : {"out/exported/config.json", "out/exported/model.safetensors"})
           compare_bytes(folder / name, reference / name);
       },
       keep_inputs},
      {"checkpoint_import",
       {"ostrakon-checkpoint", "import", "@/exported", "@/out.h5"},
       1,
       "",
       [](const fs::path& folder, const fs::path& reference) {
         compare_weights(folder / "out.h5", reference / "out.h5");
       },
       keep_inputs},
      {"checkpoint_reshard",
       {"ostrakon-checkpoint", "reshard", "@/run/checkpoints/step-00000002", "@/out", "--ranks",
        "2"},
       1,
       "",
       [](const fs::path& folder, const fs::path&) { verify_checkpoint(folder / "out"); },
       keep_inputs},
  };
}

}  // namespace ostrakon::testing
