// SPDX-License-Identifier: Apache-2.0

// `diff`: compares two weight files, or two checkpoints.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_source.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <ostrakon/math/half.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "checkpoint_commands.hpp"
#include "model_file.hpp"

namespace ostrakon::apps::checkpoint_program {
namespace {

using checkpoint::CheckpointReader;
using checkpoint::HuggingFaceSource;
using checkpoint::Manifest;
using checkpoint::ParameterSource;
using checkpoint::SafetensorsReader;
using checkpoint::State;
using checkpoint::WeightsReader;

constexpr std::int64_t block_elements = 1 << 20;

// --- the two sides -------------------------------------------------------------------------------

/// An array of one of the two files.
struct Array {
  std::vector<std::int64_t> shape;
  std::function<void(std::int64_t first, std::int64_t count, float* values)> read;
};
using Arrays = std::map<std::string, Array>;

/// Adds a parameter under our name.
void add(Arrays& arrays, ParameterSource& source, const std::string& owner, const std::string& name,
         const std::vector<std::int64_t>& shape) {
  const auto read = [&source, owner, name, shape](std::int64_t first, std::int64_t count,
                                                  float* values) {
    source.read(owner, name, shape, first, count, values);
  };
  arrays[owner + "." + name] = {shape, read};
}

Arrays arrays_of(WeightsReader& weights) {
  Arrays arrays;
  for (const WeightsReader::Entry& entry : weights.parameters())
    add(arrays, weights, entry.unit, entry.parameter, entry.shape);
  return arrays;
}

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

/// Returns parameters, and moments as "first_moment of block.3.attention.qkv.weight".
Arrays arrays_of(CheckpointReader& reader, bool with_moments) {
  Arrays arrays;
  const auto& parameters = reader.manifest().parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const checkpoint::ParameterEntry& entry = parameters[i];
    const auto index = static_cast<int>(i);
    for (const State state : all_states) {
      const bool is_moment = state != State::parameters;
      if (!reader.has(state, index) || (is_moment && !with_moments)) continue;
      const std::string of = is_moment ? checkpoint::name(state) + std::string(" of ") : "";
      arrays[of + entry.owner + "." + entry.name] = {
          entry.shape,
          [&reader, state, index](std::int64_t first, std::int64_t count, float* values) {
            read_state(reader, state, index, first, count, values);
          }};
    }
  }
  return arrays;
}

/// Returns the tensors under their own names.
Arrays arrays_of(SafetensorsReader& file) {
  Arrays arrays;
  for (const auto& [name, tensor] : file.tensors())
    arrays[name] = {tensor.shape,
                    [&file, name = name](std::int64_t first, std::int64_t count, float* values) {
                      file.read(name, first, count, values);
                    }};
  return arrays;
}

/// Returns the parameters under our names.
Arrays arrays_of(HuggingFaceSource& source, const config::Settings& settings) {
  Arrays arrays;
  for (const model::Parameter& p : checkpoint::parameters_of(settings.model, source.positions()))
    add(arrays, source, p.owner, p.name, p.shape);
  return arrays;
}

/// One of the two files to compare.
class Side {
 public:
  Side(const std::string& path, const std::string& other) {
    const FileKind kind = single_model_kind(path), other_kind = single_model_kind(other);
    if (kind == FileKind::weights) {
      weights_ = std::make_unique<WeightsReader>(path);
      arrays_ = arrays_of(*weights_);
    } else if (kind == FileKind::checkpoint) {
      checkpoint_ = std::make_unique<CheckpointReader>(path);
      arrays_ = arrays_of(*checkpoint_, other_kind == FileKind::checkpoint);
    } else if (other_kind == FileKind::safetensors) {
      tensors_ = std::make_unique<SafetensorsReader>(path);
      arrays_ = arrays_of(*tensors_);
    } else {
      const config::Settings settings = open_with_deck(other).settings;
      const std::optional<checkpoint::HuggingFaceConfig> config = config_of(path, settings);
      model_ = std::make_unique<HuggingFaceSource>(path, settings.model, config);
      arrays_ = arrays_of(*model_, settings);
      if (!model_->unchecked().empty())
        std::cout << "note: " << printable(model_->unchecked()) << "\n\n";
    }
  }

  const Arrays& arrays() const { return arrays_; }
  /// Differences between its config.json and the other's deck; empty if there are none, or no
  /// config.json.
  const std::string& model_difference() const { return model_difference_; }
  /// Null if it is not a checkpoint.
  const Manifest* manifest() const { return checkpoint_ ? &checkpoint_->manifest() : nullptr; }

 private:
  /// Reads the config.json of safetensors. Differences are kept, as arrays of different models can
  /// be compared, too.
  std::optional<checkpoint::HuggingFaceConfig> config_of(const std::string& path,
                                                         const config::Settings& settings) {
    const std::string config_path = checkpoint::huggingface_config_next_to(path);
    if (config_path.empty()) return std::nullopt;
    const auto config = checkpoint::load_huggingface_config(config_path);
    try {
      require_same_model(config, settings.model, settings.training.sequence_length);
    } catch (const Error& error) {
      model_difference_ = error.what();
    }
    return config;
  }

  std::string model_difference_;
  std::unique_ptr<WeightsReader> weights_;
  std::unique_ptr<CheckpointReader> checkpoint_;
  std::unique_ptr<SafetensorsReader> tensors_;
  std::unique_ptr<HuggingFaceSource> model_;
  Arrays arrays_;
};

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
  const auto add_row = [&](const std::string& name, const Array& array, const std::string& what) {
    table.add({printable(name), hdf5::shape_text(array.shape), what});
  };
  for (const auto& [name, array] : a) {
    const auto other = b.find(name);
    TextWriter what;
    if (other == b.end()) {
      what << "only in the first";
    } else if (other->second.shape != array.shape) {
      what << hdf5::shape_text(other->second.shape) << " in the second";
    } else {
      const double difference = largest_difference(array, other->second);
      what << std::setprecision(9) << difference;
      if (difference == 0.0) {
        add_row(name, array, what.str());
        continue;
      }
    }
    ++different;
    add_row(name, array, what.str());
  }
  for (const auto& [name, array] : b) {
    if (a.count(name) > 0) continue;
    ++different;
    add_row(name, array, "only in the second");
  }
  table.print();
  return different;
}

// --- the rest of checkpoints ---------------------------------------------------------------------

/// Names with values as text, in order.
using Fields = std::vector<std::pair<std::string, std::string>>;

/// Formats a number so that it reads back exactly.
std::string exact(double value) {
  TextWriter out;
  out << std::setprecision(17) << value;
  return out.str();
}

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
  for (const State state : all_states)
    fields.emplace_back(std::string("dtype of ") + checkpoint::name(state),
                        ostrakon::name(manifest.dtypes[static_cast<int>(state)]));
  return fields;
}

/// Returns a line of a resolved deck, trimmed and without its comment.
std::string without_comment(const std::string& line) {
  bool quoted = false;
  std::size_t end = line.size();
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && quoted)
      ++i;
    else if (line[i] == '"')
      quoted = !quoted;
    else if (line[i] == '#' && !quoted) {
      end = i;
      break;
    }
  }
  const std::string text = line.substr(0, end);
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

/// Returns the keys of a resolved deck, "training.steps", with their values, in order.
Fields fields_of_deck(const std::string& deck) {
  Fields fields;
  std::string section;
  std::istringstream lines(deck);
  for (std::string line; std::getline(lines, line);) {
    const std::string found = without_comment(line);
    if (found.empty()) continue;
    const std::size_t indent = line.find_first_not_of(' ');
    const std::size_t colon = found.find(':');
    if (indent <= 2) {
      section = found.substr(0, colon);
    } else if (indent == 4 && colon != std::string::npos) {
      const std::size_t value = found.find_first_not_of(' ', colon + 1);
      fields.emplace_back(section + "." + found.substr(0, colon),
                          value == std::string::npos ? "" : found.substr(value));
    } else if (!fields.empty()) {
      fields.back().second += " " + found;  // a value with several lines
    }
  }
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

}  // namespace

int diff(int argc, char** argv) {
  const CommandLine arguments(program, argc, argv, {});
  require_two_files(arguments, "diff", "A and B");
  const std::string a = resolve_model_path(arguments.files()[0]),
                    b = resolve_model_path(arguments.files()[1]);
  const Side first(a, b), second(b, a);
  std::size_t different = 0;
  if (first.manifest() != nullptr && second.manifest() != nullptr) {
    const Manifest &x = *first.manifest(), &y = *second.manifest();
    different += print_differences("the runs", fields_of(x), fields_of(y));
    print_differences("their decks", fields_of_deck(x.deck), fields_of_deck(y.deck));
  }
  for (const Side* side : {&first, &second}) {
    if (side->model_difference().empty()) continue;
    ++different;
    std::cout << printable_lines(side->model_difference()) << "\n\n";
  }
  different += print_differences(first.arrays(), second.arrays());
  if (different == 0)
    std::cout << "equal\n";
  else
    std::cout << different << " differ\n";
  return different == 0 ? 0 : 1;
}

}  // namespace ostrakon::apps::checkpoint_program
