// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/run_data.hpp>

#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/run/about_path.hpp>
#include <ostrakon/saving/continuation.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

RunData open_run_data(const config::Settings& settings, const model::LossTerms& loss,
                      const RunOptions& options, comm::Communicator& world, Console& console) {
  const config::TrainingSettings& training = settings.training;
  data::DataSettings data = settings.data;
  if (options.dry_run) data.verify = false;
  const auto open = [&](data::Split split) {
    return data::open_dataset(data, split, training.sequence_length, settings.model.vocabulary,
                              training.seed, world);
  };
  RunData opened;
  opened.training = about_path(settings, "data.path", [&] { return open(data::Split::training); });
  if (training.validate_every > 0)
    opened.validation = {
        about_path(settings, "data.validation_path", [&] { return open(data::Split::validation); }),
        training, loss};
  std::vector<std::string> notes;
  if (opened.validation.has_data())
    about_path(settings, "data.validation_path", [&] {
      world.run_collectively([&] {
        notes = require_comparable_validation(opened.training->identity(), data.path,
                                              opened.validation.data().identity(), options.allowed);
      });
    });
  TextWriter out;
  out << "data\n  training               "
      << format_count(static_cast<std::int64_t>(opened.training->samples())) << " samples of "
      << training.sequence_length << " tokens\n";
  if (opened.validation.has_data()) out << opened.validation.describe() << note_lines(notes);
  if (const auto entropy = opened.training->entropy())
    out << "  entropy                " << *entropy << " nats per token\n";
  out << "\n";
  console.say(out.str());
  return opened;
}

}  // namespace ostrakon::train
