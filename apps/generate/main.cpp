// SPDX-License-Identifier: Apache-2.0
// ostrakon-generate: samples text from trained weights.
#include <algorithm>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/models_of_run.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/runtime/memory_counter.hpp>

#include "../common/program.hpp"
#include "texts.hpp"

namespace {

using namespace ostrakon;

/// How many texts are computed together: as many as asked for, or as memory has room for.
train::GeneratorSettings settings_of(const apps::TextModel& model, const apps::Line& line,
                                     std::size_t texts) {
  const auto most = static_cast<std::int64_t>(texts);
  train::GeneratorSettings settings;
  settings.dtype = line.dtype;
  settings.sequences = std::min(most, line.batch.value_or(8));
  if (line.batch) return settings;
  const std::int64_t available = runtime::available_memory_bytes(plan::Space::device);
  while (settings.sequences > 1 &&
         train::Generator::memory_bytes(model.file.settings, settings) > available)
    settings.sequences = (settings.sequences + 1) / 2;
  return settings;
}

void tell_damage(const std::string& problem) {
  std::cerr << "damaged: " << printable(problem) << std::endl;
}

/// Writes texts with the given model or, for a run's folder, with the first one without damage.
void generate(const apps::Line& line, const std::string& named) {
  const bool of_run = checkpoint::is_run_folder(named);
  require(!of_run || !line.deck, "--deck is for safetensors; '", named, "' is a run's folder");
  const std::vector<std::string> paths =
      of_run ? checkpoint::models_of_run(named, tell_damage)
             : std::vector<std::string>{apps::resolve_model_path(named)};
  std::vector<apps::Prompt> prompts;
  for (std::size_t i = 0;; ++i) {
    apps::TextModel model;
    apps::Texts texts;
    std::unique_ptr<train::Generator> generator;
    try {
      model = apps::open_text_model(paths[i], line);
      const std::string unchecked = model.file.parameters->unchecked();
      if (!unchecked.empty())
        std::cerr << "ostrakon-generate: note: " << printable(unchecked) << std::endl;
      if (prompts.empty()) prompts = apps::read_prompts(line, std::cerr);
      texts = apps::begin_texts(model, line, prompts);
      apps::fit_context(model, texts.longest() + line.tokens, line);
      model.file.parameters->verify();
      if (of_run)
        std::cerr << "model: " << printable(paths[i]) << ", step " << model.file.step << std::endl;
      generator =
          std::make_unique<train::Generator>(model.file.settings, *model.file.parameters,
                                             settings_of(model, line, texts.beginnings.size()));
    } catch (const DamagedError& error) {
      if (i + 1 == paths.size()) throw;
      tell_damage(error.what());
      continue;
    }
    return apps::write_texts(*generator, model, line, texts);
  }
}

}  // namespace

int main(int argc, char** argv) {
  apps::Line line;
  const auto run = [&](comm::Communicator& world, const apps::Given& given) {
    world.run_collectively([&] {
      require(world.size() == 1, "started on ", world.size(), " ranks; expected one");
      // Threads are set as in training: by default libraries use all cores, although the products
      // are too small for that.
      math::set_gemm_threads(line.threads.value_or(host_threads()));
      generate(line, given.operands[0]);
    });
    return 0;
  };
  return apps::run_program(apps::generate_program(line), argc, argv, run);
}
