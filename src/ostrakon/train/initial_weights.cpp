// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/initial_weights.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/open_parameters.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <ostrakon/train/continuation.hpp>
#include <vector>

namespace ostrakon::train {

std::unique_ptr<checkpoint::ParameterSource> open_initial_weights(const config::Settings& settings,
                                                                  const RunOptions& options,
                                                                  const std::string& tokenizer,
                                                                  comm::Communicator& world,
                                                                  Console& console) {
  const std::string& path = settings.checkpoint.initial_weights;
  if (path.empty()) return nullptr;
  std::unique_ptr<checkpoint::ParameterSource> weights;
  world.agree([&] {
    weights = checkpoint::open_parameters(
        path, settings.model, settings.training.sequence_length,
        [&](const std::string& deck) { config::require_same_model(settings, deck, path); });
    if (console.is_root() && !options.dry_run && !weights->checks_what_it_reads())
      weights->verify();
  });
  std::vector<std::string> notes;
  world.agree([&] {
    if (!console.is_root()) return;  // it may have to read a file for that
    notes = require_same_tokenizer(weights->tokenizer(), path, tokenizer, options.allowed);
    if (tokenizer == data::unknown_tokenizer && notes.empty())
      notes.emplace_back("nothing says whose tokens the weights know, nor whose the data has");
  });
  if (!weights->unchecked().empty()) notes.push_back(weights->unchecked());
  console.say(text("weights\n  begin as in            ", path, "\n", note_lines(notes), "\n"));
  return weights;
}

}  // namespace ostrakon::train
