// SPDX-License-Identifier: Apache-2.0

// ostrakon-checkpoint: looks into files of weights, and takes them to Hugging Face's format and
// back.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/checkpoint/huggingface.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <ostrakon/config/deck.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "program.hpp"

namespace {

using namespace ostrakon;
using apps::CommandLine;
using checkpoint::SafetensorsReader;
using checkpoint::WeightsReader;

constexpr const char* program = "ostrakon-checkpoint";

constexpr const char* usage =
    R"(usage: ostrakon-checkpoint inspect FILE
       ostrakon-checkpoint verify FILE
       ostrakon-checkpoint export WEIGHTS OUT.safetensors [--dtype fp32|bf16]
       ostrakon-checkpoint import IN OUT.h5 --deck DECK [--tokenizer NAME]
       ostrakon-checkpoint diff A B

Files are weights.h5 of ostrakon-train, or safetensors: one file, an index
(model.safetensors.index.json), or a folder with either.

inspect  prints what a file holds: parameters, shapes, types, and the step of weights.h5
verify   reads all of a file: checksums of weights.h5, the form of safetensors, which have none
export   writes weights as safetensors with the names of Hugging Face's GPT-2 or Llama
    --dtype fp32|bf16      numbers of OUT (default fp32)
import   writes GPT-2 or Llama in safetensors as weights.h5 for ostrakon-generate and others
    --deck DECK            its section `model`, and sequence_length, describe the weights
    --tokenizer NAME       whose tokens they know (default: what export wrote, or external)
diff     prints the largest absolute difference of each parameter

--help and --version print and leave. Exit status: 0 done, of diff: equal; 1 bad input or failure, of
diff: not equal.
)";

constexpr std::int64_t block_elements = 1 << 20;

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

config::Settings settings_of(const WeightsReader& weights) {
  return config::read_settings(weights.deck(), weights.path() + " (its deck)", {});
}

/// Text of a file, which may hold what a terminal would obey.
std::string printable(std::string text) {
  for (char& character : text)
    if (static_cast<unsigned char>(character) < 32 || character == 127) character = '?';
  return text;
}

/// A list of parameters in columns.
class Listing {
 public:
  void add(const std::string& name, const std::vector<std::int64_t>& shape,
           const std::string& what) {
    rows_.push_back({printable(name), hdf5::shape_text(shape), what});
  }
  void print() const {
    std::size_t widest_name = 0, widest_shape = 0;
    for (const Row& row : rows_) {
      widest_name = std::max(widest_name, row.name.size());
      widest_shape = std::max(widest_shape, row.shape.size());
    }
    for (const Row& row : rows_)
      std::cout << "  " << std::left << std::setw(static_cast<int>(widest_name)) << row.name << "  "
                << std::setw(static_cast<int>(widest_shape)) << row.shape << "  " << row.what
                << "\n";
  }

 private:
  struct Row {
    std::string name, shape, what;
  };
  std::vector<Row> rows_;
};

// --- inspect, verify -----------------------------------------------------------------------------

void inspect_weights(const std::string& path) {
  const WeightsReader weights(path);
  Listing listing;
  std::int64_t elements = 0;
  const auto parameters = weights.parameters();
  for (const WeightsReader::Entry& entry : parameters) {
    listing.add(entry.unit + "." + entry.parameter, entry.shape, "fp32");
    elements += elements_of(entry.shape);
  }
  std::cout << path << "\n  format      ostrakon-weights 1\n  step        "
            << format_count(weights.step()) << "\n  tokenizer   " << printable(weights.tokenizer())
            << "\n  parameters  " << format_count(elements) << " in " << parameters.size()
            << " arrays\n\n";
  listing.print();
}

void inspect_safetensors(const std::string& path) {
  const SafetensorsReader file(path);
  Listing listing;
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    listing.add(name, tensor.shape, tensor.dtype);
    elements += tensor.elements();
  }
  std::cout << path << "\n  format      safetensors\n";
  for (const auto& [key, value] : file.metadata())
    std::cout << "  " << printable(key) << ": " << printable(value) << "\n";
  std::cout << "  numbers     " << format_count(elements) << " in " << file.tensors().size()
            << " tensors\n\n";
  listing.print();
}

void inspect(int argc, char** argv) {
  const CommandLine arguments(program, argc, argv, {});
  const std::string& path = arguments.one_file("inspect", "file");
  if (checkpoint::looks_like_hdf5(path))
    inspect_weights(path);
  else
    inspect_safetensors(path);
}

void verify(int argc, char** argv) {
  const CommandLine arguments(program, argc, argv, {});
  const std::string& path = arguments.one_file("verify", "file");
  if (!checkpoint::looks_like_hdf5(path)) {
    const SafetensorsReader file(path);
    std::cout << path << " is well formed: " << file.tensors().size()
              << " tensors (the format has no checksums)\n";
    return;
  }
  WeightsReader weights(path);
  weights.verify();
  const auto parameters = weights.parameters();
  const config::Settings settings = settings_of(weights);
  const auto expected =
      checkpoint::parameters_of(settings.model, settings.training.sequence_length);
  for (const model::Parameter& parameter : expected) {
    float ignored = 0.0f;
    weights.read(parameter.owner, parameter.name, parameter.shape, 0, 1, &ignored);
  }
  require(parameters.size() == expected.size(), "'", path, "' has ", parameters.size(),
          " parameters; its deck describes ", expected.size());
  std::cout << path << " is sound: " << parameters.size()
            << " parameters of its deck's model, each with its checksum\n";
}

// --- export, import ------------------------------------------------------------------------------

void require_two_files(const CommandLine& arguments, const char* command, const char* what) {
  require(arguments.files().size() == 2, command, " takes two files, ", what, "; found ",
          arguments.files().size());
}

void require_another_file(const std::string& in, const std::string& out) {
  std::error_code ignored;
  require(!std::filesystem::equivalent(in, out, ignored), "'", out, "' is the file to read");
}

void export_weights(int argc, char** argv) {
  const CommandLine arguments(program, argc, argv, {"--dtype"});
  require_two_files(arguments, "export", "WEIGHTS and OUT");
  const std::string &in = arguments.files()[0], &out = arguments.files()[1];
  const std::string type = arguments.text_option("--dtype").value_or("fp32");
  require(type == "fp32" || type == "bf16", "--dtype is '", type, "'; expected fp32 or bf16");
  require_another_file(in, out);
  WeightsReader weights(in);
  const config::Settings settings = settings_of(weights);
  weights.verify();
  checkpoint::write_huggingface(
      out, settings.model, settings.training.sequence_length,
      type == "fp32" ? Number::fp32 : Number::bf16,
      {{"tokenizer", weights.tokenizer()}, {"program", text(program, " ", OSTRAKON_VERSION)}},
      weights);
  std::cout << "wrote " << out << ", step " << format_count(weights.step()) << " of " << in
            << " in " << type << "\n";
}

/// Whose tokens a file says that it knows.
std::string tokenizer_of(const std::string& path) {
  if (checkpoint::looks_like_hdf5(path)) return WeightsReader(path).tokenizer();
  const SafetensorsReader file(path);
  const auto found = file.metadata().find("tokenizer");
  return found == file.metadata().end() ? "external" : found->second;
}

void import_weights(int argc, char** argv) {
  const CommandLine arguments(program, argc, argv, {"--deck", "--tokenizer"});
  require_two_files(arguments, "import", "IN and OUT");
  const std::string &in = arguments.files()[0], &out = arguments.files()[1];
  const std::string deck = arguments.text_option("--deck").value_or("");
  require(!deck.empty(), "import needs --deck DECK");
  require_another_file(in, out);
  const config::Settings settings = config::read_settings(apps::read_file(deck), deck, {});
  const auto source = checkpoint::open_parameters(in, settings.model);
  source->verify();
  const std::string tokenizer = arguments.text_option("--tokenizer").value_or(tokenizer_of(in));
  checkpoint::WeightsWriter writer(out, config::write_deck(config::with_absolute_paths(settings)),
                                   0, tokenizer);
  std::vector<float> values;
  for (const model::Parameter& p :
       checkpoint::parameters_of(settings.model, settings.training.sequence_length)) {
    values.resize(static_cast<std::size_t>(p.elements()));
    source->read(p.owner, p.name, p.shape, 0, p.elements(), values.data());
    writer.write(p.owner, p.name, p.shape, values.data());
  }
  writer.finish();
  std::cout << "wrote " << out << ", tokenizer " << tokenizer << "\n";
}

// --- diff ----------------------------------------------------------------------------------------

/// An array of one of the two sides.
struct Array {
  std::vector<std::int64_t> shape;
  std::function<void(std::int64_t first, std::int64_t count, float* values)> read;
};
using Arrays = std::map<std::string, Array>;

Arrays arrays_of(WeightsReader& weights) {
  Arrays arrays;
  for (const WeightsReader::Entry& entry : weights.parameters())
    arrays[entry.unit + "." + entry.parameter] = {
        entry.shape, [&weights, entry](std::int64_t first, std::int64_t count, float* values) {
          weights.read(entry.unit, entry.parameter, entry.shape, first, count, values);
        }};
  return arrays;
}

/// Under their own names.
Arrays arrays_of(SafetensorsReader& file) {
  Arrays arrays;
  for (const auto& [name, tensor] : file.tensors())
    arrays[name] = {tensor.shape,
                    [&file, name = name](std::int64_t first, std::int64_t count, float* values) {
                      file.read(name, first, count, values);
                    }};
  return arrays;
}

/// Under our names for them.
Arrays arrays_of(checkpoint::HuggingFaceSource& source, const config::Settings& settings) {
  Arrays arrays;
  for (const model::Parameter& p : checkpoint::parameters_of(settings.model, source.positions()))
    arrays[p.full_name()] = {p.shape,
                             [&source, p](std::int64_t first, std::int64_t count, float* values) {
                               source.read(p.owner, p.name, p.shape, first, count, values);
                             }};
  return arrays;
}

/// 0 where they are the same, bits of NaN too; NaN where only one is a number.
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
      if (std::memcmp(&x[i], &y[i], sizeof(float)) == 0) continue;
      const double difference = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
      if (std::isnan(difference)) return difference;
      largest = std::max(largest, difference);
    }
  }
  return largest;
}

bool print_differences(const Arrays& a, const Arrays& b) {
  Listing listing;
  std::size_t different = 0;
  for (const auto& [name, array] : a) {
    const auto other = b.find(name);
    std::ostringstream what;
    if (other == b.end()) {
      what << "only in the first";
    } else if (other->second.shape != array.shape) {
      what << hdf5::shape_text(other->second.shape) << " in the second";
    } else {
      const double difference = largest_difference(array, other->second);
      what << std::setprecision(9) << difference;
      if (difference == 0.0) {
        listing.add(name, array.shape, what.str());
        continue;
      }
    }
    ++different;
    listing.add(name, array.shape, what.str());
  }
  for (const auto& [name, array] : b) {
    if (a.count(name) > 0) continue;
    ++different;
    listing.add(name, array.shape, "only in the second");
  }
  listing.print();
  if (different == 0)
    std::cout << "equal\n";
  else
    std::cout << different << " differ\n";
  return different == 0;
}

bool diff(int argc, char** argv) {
  const CommandLine arguments(program, argc, argv, {});
  require_two_files(arguments, "diff", "A and B");
  const std::string &a = arguments.files()[0], &b = arguments.files()[1];
  const bool a_is_ours = checkpoint::looks_like_hdf5(a);
  const bool b_is_ours = checkpoint::looks_like_hdf5(b);
  if (a_is_ours && b_is_ours) {
    WeightsReader first(a), second(b);
    return print_differences(arrays_of(first), arrays_of(second));
  }
  if (!a_is_ours && !b_is_ours) {
    SafetensorsReader first(a), second(b);
    return print_differences(arrays_of(first), arrays_of(second));
  }
  WeightsReader ours(a_is_ours ? a : b);
  const config::Settings settings = settings_of(ours);
  checkpoint::HuggingFaceSource theirs(a_is_ours ? b : a, settings.model);
  const Arrays first = arrays_of(ours), second = arrays_of(theirs, settings);
  return a_is_ours ? print_differences(first, second) : print_differences(second, first);
}

/// The exit status.
int run(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--") break;
    if (argument == "--help" || argument == "-h") {
      std::cout << usage;
      return 0;
    }
    if (argument == "--version") {
      std::cout << program << " " << OSTRAKON_VERSION << "\n";
      return 0;
    }
  }
  const std::string command = argc > 1 ? argv[1] : "";
  const char* const commands = "inspect, verify, export, import or diff";
  require(!command.empty(), "no command; expected ", commands, " (see --help)");
  if (command == "diff") return diff(argc, argv) ? 0 : 1;
  if (command == "inspect")
    inspect(argc, argv);
  else if (command == "verify")
    verify(argc, argv);
  else if (command == "export")
    export_weights(argc, argv);
  else if (command == "import")
    import_weights(argc, argv);
  else
    throw Error(text("unknown command '", command, "'; expected ", commands));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int status = run(argc, argv);
    std::cout.flush();
    require(std::cout.good(), "can't write to the standard output");
    return status;
  } catch (const std::exception& error) {
    std::cerr << program << ": error: " << error.what() << "\n";
    return 1;
  }
}
