// SPDX-License-Identifier: Apache-2.0

// `diff`: compares two weight files, or two checkpoints.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/checkpoint/huggingface/dequantizing_reader.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_source.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <ostrakon/config/value.hpp>
#include <ostrakon/math/half.hpp>

#include "../common/model_file.hpp"
#include "commands.hpp"

namespace ostrakon::apps::checkpoint_program {
namespace {

using checkpoint::CheckpointReader;
using checkpoint::DequantizingReader;
using checkpoint::HuggingFaceSource;
using checkpoint::Manifest;
using checkpoint::ParameterSource;
using checkpoint::State;
using checkpoint::WeightsReader;

constexpr std::int64_t block_elements = 1 << 20;

// --- the two sides -------------------------------------------------------------------------------

/// An array of one of the two files, which it keeps open.
struct Array {
  std::vector<std::int64_t> shape;
  std::function<void(std::int64_t first, std::int64_t count, float* values)> read;
};
using Arrays = std::map<std::string, Array>;

/// One of the two files to compare.
struct Side {
  Arrays arrays;
  std::string model_difference;      ///< between its config.json, if any, and the other's deck
  std::optional<Manifest> manifest;  ///< of a checkpoint

  /// Adds a parameter under our name.
  void add(const std::shared_ptr<ParameterSource>& source, const std::string& owner,
           const std::string& name, const std::vector<std::int64_t>& shape) {
    arrays[owner + "." + name] = {shape,
                                  [=](std::int64_t first, std::int64_t count, float* values) {
                                    source->read(owner, name, shape, first, count, values);
                                  }};
  }
};

void read_state(CheckpointReader& reader, State state, int parameter, std::int64_t first,
                std::int64_t count, float* values) {
  if (reader.manifest().dtypes[static_cast<int>(state)] == DType::fp32) {
    reader.read(state, parameter, first, count, values);
    return;
  }
  std::vector<bf16> numbers(static_cast<std::size_t>(count));
  reader.read(state, parameter, first, count, numbers.data());
  std::copy(numbers.begin(), numbers.end(), values);
}

/// With parameters, and moments as "first_moment of block.3.attention.qkv.weight".
Side side_of_checkpoint(const std::string& path, bool with_moments) {
  const auto reader = std::make_shared<CheckpointReader>(path);
  Side side;
  side.manifest = reader->manifest();
  for (std::size_t i = 0; i < side.manifest->parameters.size(); ++i) {
    const checkpoint::ParameterEntry& entry = side.manifest->parameters[i];
    const auto index = static_cast<int>(i);
    for (const State state : checkpoint::all_states) {
      const bool is_moment = state != State::parameters;
      if (!reader->has(state, index) || (is_moment && !with_moments)) continue;
      const std::string of = is_moment ? checkpoint::name(state) + std::string(" of ") : "";
      side.arrays[of + entry.owner + "." + entry.name] = {
          entry.shape, [=](std::int64_t first, std::int64_t count, float* values) {
            read_state(*reader, state, index, first, count, values);
          }};
    }
  }
  return side;
}

/// With the tensors of safetensors under their own names, dequantized.
Side side_of_tensors(const std::string& path) {
  const auto file = std::make_shared<DequantizingReader>(path);
  Side side;
  for (const auto& [name, tensor] : file->tensors())
    side.arrays[name] = {
        tensor.shape, [file, name = name](std::int64_t first, std::int64_t count, float* values) {
          file->read(name, first, count, values);
        }};
  return side;
}

/// With the parameters of safetensors under our names. A config.json that describes another model
/// is no error, as arrays of different models can be compared, too.
Side side_of_model(const std::string& path, const config::Settings& settings) {
  Side side;
  std::optional<checkpoint::HuggingFaceConfig> config;
  if (const std::string file = checkpoint::huggingface_config_next_to(path); !file.empty()) {
    config = checkpoint::load_huggingface_config(file);
    try {
      require_same_model(*config, settings.model, settings.training.sequence_length);
    } catch (const Error& error) {
      side.model_difference = error.what();
    }
  }
  const auto source = std::make_shared<HuggingFaceSource>(path, settings.model, config);
  for (const model::Parameter& p : checkpoint::parameters_of(settings.model, source->positions()))
    side.add(source, p.owner, p.name, p.shape);
  if (!source->unchecked().empty())
    std::cout << "note: " << printable(source->unchecked()) << "\n\n";
  return side;
}

Side side_of(const std::string& path, const std::string& other) {
  const FileKind kind = single_model_kind(path), other_kind = single_model_kind(other);
  if (kind == FileKind::checkpoint)
    return side_of_checkpoint(path, other_kind == FileKind::checkpoint);
  if (kind == FileKind::safetensors)
    return other_kind == FileKind::safetensors
               ? side_of_tensors(path)
               : side_of_model(path, open_with_deck(other).settings);
  const auto weights = std::make_shared<WeightsReader>(path);
  Side side;
  for (const WeightsReader::Entry& entry : weights->parameters())
    side.add(weights, entry.unit, entry.parameter, entry.shape);
  return side;
}

// --- arrays --------------------------------------------------------------------------------------

/// Returns 0 if the arrays are bitwise equal, including NaNs; NaN if only one element is a number.
double largest_difference(const Array& a, const Array& b) {
  const std::int64_t elements = elements_of(a.shape);
  std::vector<float> x, y;
  double largest = 0.0;
  for (std::int64_t first = 0; first < elements; first += block_elements) {
    const std::int64_t count = std::min(block_elements, elements - first);
    x.resize(static_cast<std::size_t>(count));
    y.resize(x.size());
    a.read(first, count, x.data());
    b.read(first, count, y.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      // Equal bits are no difference, also those of NaN.
      // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
      if (std::memcmp(&x[i], &y[i], sizeof(float)) == 0) continue;
      const double difference = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
      if (std::isnan(difference)) return difference;
      largest = std::max(largest, difference);
    }
  }
  return largest;
}

/// Prints all differences. Returns their number.
std::size_t print_differences(const Arrays& a, const Arrays& b) {
  Table table;
  std::size_t different = 0;
  const auto add = [&](const std::string& name, const Array& array, const std::string& what) {
    table.add({printable(name), hdf5::shape_text(array.shape), what});
    if (what != "0") ++different;
  };
  for (const auto& [name, array] : a) {
    const auto other = b.find(name);
    if (other == b.end())
      add(name, array, "only in the first");
    else if (other->second.shape != array.shape)
      add(name, array, hdf5::shape_text(other->second.shape) + " in the second");
    else
      add(name, array, print("%.9g", largest_difference(array, other->second)));
  }
  for (const auto& [name, array] : b)
    if (a.count(name) == 0) add(name, array, "only in the second");
  table.print();
  return different;
}

// --- the rest of checkpoints ---------------------------------------------------------------------

/// Names with values as text, in order.
using Fields = std::vector<std::pair<std::string, std::string>>;

/// Formats a number so that it reads back exactly.
std::string exact(double value) { return print("%.17g", value); }

/// Returns the values, besides arrays, that a run resumes with.
Fields fields_of(const Manifest& manifest) {
  const checkpoint::Progress& progress = manifest.progress;
  Fields fields = {{"step", text(progress.step)},
                   {"updates", text(progress.updates)},
                   {"samples", text(progress.samples)},
                   {"seed", text(progress.seed)},
                   {"skipped_in_a_row", text(progress.skipped_in_a_row)},
                   {"loss_scale", exact(progress.loss_scale)},
                   {"good_steps", text(progress.good_steps)}};
  const auto outliers = progress.outliers.value_or(checkpoint::Progress::Outliers{});
  const auto outlier = [&](const char* name, const std::string& value) {
    fields.emplace_back(std::string("outliers.") + name, progress.outliers ? value : "none");
  };
  outlier("steps", text(outliers.steps));
  outlier("loss_mean", exact(outliers.loss_mean));
  outlier("loss_variance", exact(outliers.loss_variance));
  outlier("gradient_norm_mean", exact(outliers.gradient_norm_mean));
  outlier("gradient_norm_variance", exact(outliers.gradient_norm_variance));
  fields.emplace_back("optimizer", manifest.optimizer);
  fields.emplace_back("tokenizer", manifest.tokenizer);
  for (const State state : checkpoint::all_states)
    fields.emplace_back(std::string("dtype of ") + checkpoint::name(state),
                        ostrakon::name(manifest.dtypes[static_cast<int>(state)]));
  return fields;
}

/// Returns the keys of a resolved deck, "training.steps", with their values, in order.
Fields fields_of_deck(const std::string& deck) {
  Fields fields;
  for (const config::DeckSection& section : config::read_deck(deck, "deck", false))
    for (const config::DeckEntry& entry : section.entries)
      fields.emplace_back(section.name + "." + entry.name,
                          entry.value.text.empty() ? entry.value.shown() : entry.value.text);
  return fields;
}

/// Prints differing fields as "name  first | second". Returns their number.
std::size_t print_differences(const std::string& title, const Fields& a, const Fields& b) {
  const std::map<std::string, std::string> first(a.begin(), a.end()), second(b.begin(), b.end());
  Table table;
  std::size_t different = 0;
  const auto value_in = [](const std::map<std::string, std::string>& values,
                           const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::string("(none)") : printable(found->second);
  };
  const auto compare = [&](const std::string& name) {
    const std::string x = value_in(first, name), y = value_in(second, name);
    if (x == y) return;
    ++different;
    table.add({printable(name), x + " | " + y});
  };
  for (const auto& field : a) compare(field.first);
  for (const auto& field : b)
    if (first.count(field.first) == 0) compare(field.first);
  if (different == 0) return 0;
  std::cout << title << ", first | second:\n";
  table.print();
  std::cout << "\n";
  return different;
}

int diff(const Given& given) {
  const std::string a = resolve_model_path(given.operands[0]),
                    b = resolve_model_path(given.operands[1]);
  const Side first = side_of(a, b), second = side_of(b, a);
  std::size_t different = 0;
  if (first.manifest && second.manifest) {
    different +=
        print_differences("the runs", fields_of(*first.manifest), fields_of(*second.manifest));
    print_differences("their decks", fields_of_deck(first.manifest->deck),
                      fields_of_deck(second.manifest->deck));
  }
  for (const Side* side : {&first, &second}) {
    if (side->model_difference.empty()) continue;
    ++different;
    std::cout << printable_lines(side->model_difference) << "\n\n";
  }
  different += print_differences(first.arrays, second.arrays);
  if (different == 0)
    std::cout << "equal\n";
  else
    std::cout << different << " differ\n";
  return different == 0 ? 0 : 1;
}

}  // namespace

Command diff_command() {
  return {"diff",
          "A B",
          "prints the largest absolute difference of each parameter; between two checkpoints of "
          "each moment, too, and in what else they differ (lines of their decks do not count as "
          "different)",
          {},
          diff};
}

}  // namespace ostrakon::apps::checkpoint_program
