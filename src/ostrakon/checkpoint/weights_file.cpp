// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/weights_file.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <tuple>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

constexpr const char* file_kind = "weights file";
constexpr const char* format = "ostrakon-weights";
constexpr std::int64_t format_version = 1;
constexpr const char* config_attribute = "huggingface_config";
constexpr const char* parameters_group = "/parameters";

std::string place(const std::string& unit, const std::string& parameter) {
  return parameters_group + ("/" + unit + "/" + parameter);
}

std::string checksum(const std::vector<std::int64_t>& shape, const float* values) {
  std::int64_t bytes = sizeof(float);
  for (const std::int64_t extent : shape) bytes *= extent;
  hdf5::Checksum sum;
  sum.add(values, bytes);
  return sum.hex();
}

void require_checksum(const std::string& path, const std::string& unit,
                      const std::string& parameter, const hdf5::Dataset& dataset,
                      const std::string& found) {
  const std::string expected = dataset.text_attribute("checksum");
  require(found == expected, "parameter '", parameter, "' of unit '", unit, "' in ", file_kind,
          " '", path, "' is damaged: its checksum is ", found, ", expected ", expected);
}

hdf5::File open_weights_file(const std::string& path) {
  hdf5::File file = hdf5::File::open(path, file_kind);
  file.check_format(format, format_version);
  return file;
}

}  // namespace

WeightsWriter::WeightsWriter(const std::string& path, const std::string& deck, std::int64_t step,
                             const std::string& tokenizer, const std::string& huggingface_config)
    : file_(hdf5::File::create(path, file_kind)) {
  file_.write_format(format, format_version);
  hdf5::Object root = file_.root();
  root.write_attribute("deck", deck);
  root.write_attribute("step", step);
  root.write_attribute("tokenizer", tokenizer);
  if (!huggingface_config.empty()) root.write_attribute(config_attribute, huggingface_config);
}

void WeightsWriter::write(const std::string& unit, const std::string& parameter,
                          const std::vector<std::int64_t>& shape, const float* values) {
  for (const std::int64_t extent : shape) {
    require(extent > 0, "parameter '", parameter, "' of unit '", unit, "' has the shape ",
            hdf5::shape_text(shape), "; expected positive extents");
  }
  hdf5::Dataset dataset = file_.create_array(place(unit, parameter), hdf5::Type::float32, shape);
  dataset.write(hdf5::Type::float32, values);
  dataset.write_attribute("checksum", checksum(shape, values));
}

void WeightsWriter::finish() {
  file_.complete();
  WeightsReader(file_.partial_path()).verify();
  file_.commit();
}

WeightsReader::WeightsReader(const std::string& path) : file_(open_weights_file(path)) {
  const hdf5::Object root = file_.root();
  deck_ = root.text_attribute("deck");
  step_ = root.integer_attribute("step");
  tokenizer_ = root.text_attribute("tokenizer");
  if (root.has_attribute(config_attribute))
    huggingface_config_ = root.text_attribute(config_attribute);
}

hdf5::Dataset WeightsReader::find(const std::string& unit, const std::string& parameter,
                                  const std::vector<std::int64_t>& shape) const {
  const std::string name = place(unit, parameter);
  require(file_.has(name), file_kind, " '", file_.path(), "' has no parameter '", parameter,
          "' of unit '", unit, "'");
  hdf5::Dataset dataset = file_.dataset(name);
  require(dataset.shape() == shape, "parameter '", parameter, "' of unit '", unit,
          "' has the shape ", hdf5::shape_text(dataset.shape()), " in ", file_kind, " '",
          file_.path(), "', expected ", hdf5::shape_text(shape));
  require(dataset.type() == hdf5::Type::float32, "parameter '", parameter, "' of unit '", unit,
          "' is ", hdf5::name(dataset.type()), " in ", file_kind, " '", file_.path(),
          "', expected float32");
  return dataset;
}

void WeightsReader::read(const std::string& unit, const std::string& parameter,
                         const std::vector<std::int64_t>& shape, float* values) const {
  const hdf5::Dataset dataset = find(unit, parameter, shape);
  dataset.read(hdf5::Type::float32, values);
  require_checksum(file_.path(), unit, parameter, dataset, checksum(shape, values));
}

void WeightsReader::read(const std::string& unit, const std::string& parameter,
                         const std::vector<std::int64_t>& shape, std::int64_t first,
                         std::int64_t count, float* values) {
  find(unit, parameter, shape).read_elements(hdf5::Type::float32, first, count, values);
}

std::vector<WeightsReader::Entry> WeightsReader::parameters() const {
  std::vector<Entry> entries;
  for (const std::string& name : file_.datasets(parameters_group)) {
    // A unit's name may contain '/'; a parameter's name does not.
    const std::size_t slash = name.rfind('/');
    require(slash != std::string::npos, file_kind, " '", file_.path(), "': parameter '", name,
            "' belongs to no unit");
    entries.push_back({name.substr(0, slash), name.substr(slash + 1),
                       file_.dataset(parameters_group + ("/" + name)).shape()});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.unit, a.parameter) < std::tie(b.unit, b.parameter);
  });
  return entries;
}

void WeightsReader::verify() {
  constexpr std::int64_t block = 1 << 20;
  std::vector<float> values;
  for (const Entry& entry : parameters()) {
    const hdf5::Dataset dataset = find(entry.unit, entry.parameter, entry.shape);
    std::int64_t elements = 1;
    for (const std::int64_t extent : entry.shape) elements *= extent;
    hdf5::Checksum sum;
    for (std::int64_t first = 0; first < elements; first += block) {
      const std::int64_t count = std::min(block, elements - first);
      values.resize(static_cast<std::size_t>(count));
      dataset.read_elements(hdf5::Type::float32, first, count, values.data());
      sum.add(values.data(), count * static_cast<std::int64_t>(sizeof(float)));
    }
    require_checksum(file_.path(), entry.unit, entry.parameter, dataset, sum.hex());
  }
}

}  // namespace ostrakon::checkpoint
