// SPDX-License-Identifier: Apache-2.0
#include "expected_model.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>

#include "support/scratch_folder.hpp"

namespace ostrakon::test::transformers {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path folder_of_files = fs::path(OSTRAKON_SOURCE_DIR) / "tests/transformers/expected";

/// The numbers of what has a name: 24 random bits for each element (FNV-1a of the name, then
/// SplitMix64).
class RandomBits {
 public:
  RandomBits(std::uint64_t seed, const std::string& name) : state_(14695981039346656037u ^ seed) {
    for (const char c : name) state_ = (state_ ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
  std::int64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z = z ^ (z >> 31);
    return static_cast<std::int64_t>(z >> 40);
  }

 private:
  std::uint64_t state_;
};

/// Calls `use` for each name that a name with ranges, "layers.{0-2}.weight", stands for.
void for_each_name(const std::string& name, const std::function<void(const std::string&)>& use) {
  const std::size_t begin = name.find('{'), middle = name.find('-', begin), end = name.find('}');
  if (begin == std::string::npos) return use(name);
  const int last = std::stoi(name.substr(middle + 1));
  for (int i = std::stoi(name.substr(begin + 1)); i <= last; ++i)
    for_each_name(name.substr(0, begin) + std::to_string(i) + name.substr(end + 1), use);
}

}  // namespace

Floats values_of(std::uint64_t seed, const std::string& name, std::int64_t count, double center) {
  RandomBits bits(seed, name);
  constexpr double half = 1 << 23;
  Floats values(static_cast<std::size_t>(count));
  for (float& value : values)
    value = static_cast<float>(center + 0.375 * ((static_cast<double>(bits.next()) - half) / half));
  return values;
}

std::vector<std::string> expected_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_of_files))
    names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

ExpectedModel read_expected(const std::string& name) {
  const Json file = Json::parse(testing::read_bytes((folder_of_files / (name + ".json")).string()));
  ExpectedModel expected;
  expected.name = name;
  expected.config = file.at("config");
  const auto seed = expected.seed = file.at("seed").get<std::uint64_t>();
  for (const auto& [key, center] : {std::pair("tensors_around_0", 0.0), {"tensors_around_1", 1.0}})
    for (const auto& item : file.at(key).items())
      for_each_name(item.key(), [&, center = center](const std::string& tensor) {
        const auto shape = item.value().get<std::vector<std::int64_t>>();
        const std::int64_t elements =
            std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
        expected.tensors.push_back({tensor, shape, values_of(seed, tensor, elements, center)});
      });
  std::sort(expected.tensors.begin(), expected.tensors.end(),
            [](const ExpectedTensor& a, const ExpectedTensor& b) { return a.name < b.name; });
  expected.parameters = file.at("parameters");
  RandomBits bits(seed, "tokens");
  const std::int64_t vocabulary = expected.config.at("vocab_size");
  const auto sequences = file.at("batch").at("sequences").get<std::size_t>();
  const auto tokens = file.at("batch").at("tokens").get<std::size_t>();
  expected.batch.assign(sequences, Tokens(tokens));
  for (Tokens& sequence : expected.batch)
    for (std::int32_t& token : sequence)
      token = static_cast<std::int32_t>(bits.next() % vocabulary);
  expected.log_probabilities = file.at("log_probabilities").get<std::vector<double>>();
  const int prompt = file.at("greedy").at("prompt");
  expected.prompt.assign(expected.batch[0].begin(), expected.batch[0].begin() + prompt);
  expected.greedy = file.at("greedy").at("tokens").get<Tokens>();
  expected.adamw = file.at("adamw");
  expected.losses = file.at("losses").get<std::vector<double>>();
  expected.some_losses = file.value("losses_of_some_targets", std::vector<double>());
  if (file.contains("documents")) {
    expected.documents = file["documents"].at("lengths").get<std::vector<std::int64_t>>();
    expected.losses_in_documents = file["documents"].at("losses").get<std::vector<double>>();
  }
  return expected;
}

void write_folder(const ExpectedModel& expected, const std::string& folder) {
  fs::create_directories(folder);
  testing::write_bytes((fs::path(folder) / "config.json").string(), expected.config.dump(1));
  std::vector<checkpoint::SafetensorsWriter::Tensor> list;
  for (const ExpectedTensor& tensor : expected.tensors) list.push_back({tensor.name, tensor.shape});
  checkpoint::SafetensorsWriter writer((fs::path(folder) / "model.safetensors").string(),
                                       DType::fp32, list, {{"format", "pt"}});
  for (const ExpectedTensor& tensor : expected.tensors)
    writer.write(tensor.name, tensor.values.data(),
                 static_cast<std::int64_t>(tensor.values.size()));
  writer.finish();
}

}  // namespace ostrakon::test::transformers
