// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/reference_file.hpp>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>

namespace ostrakon::data {
namespace {

constexpr const char* reference_kind = "file of the reference's log-probabilities";
constexpr const char* reference_format = "ostrakon-reference";
constexpr std::int64_t reference_version = 1;
constexpr const char* reference_facts = "reference";
constexpr const char* reference_array = "/log_probabilities";
constexpr const char* reference_checksum = "log_probabilities_checksum";

std::string checksum_of_references(const std::vector<float>& values) {
  hdf5::Checksum checksum;
  checksum.add(values.data(), static_cast<std::int64_t>(values.size() * sizeof(float)));
  return checksum.hex();
}

void require_same_pairs(const std::string& path, const hdf5::Object& root, const Fact& expected) {
  const std::string found =
      root.has_attribute(expected.name) ? root.text_attribute(expected.name) : "nothing";
  require(found == expected.value, reference_kind, " '", path, "' is of other pairs: the ",
          expected.name, " was ", found, ", and is ", expected.value,
          "; expected the file of these, or another data.reference, or none there: then it is ",
          "computed");
}

std::string write_facts(const Facts& facts) {
  auto object = nlohmann::ordered_json::object();
  for (const Fact& fact : facts) object[fact.name] = fact.value;
  return object.dump();
}

Facts read_facts(const std::string& path, const hdf5::Object& root) {
  const auto object =
      nlohmann::ordered_json::parse(root.text_attribute(reference_facts), nullptr, false);
  const auto require_form = [&](bool is_right) {
    require(is_right, reference_kind, " '", path, "': its attribute '", reference_facts,
            "' is damaged; expected a JSON object of texts");
  };
  require_form(object.is_object());
  Facts facts;
  for (const auto& [name, value] : object.items()) {
    require_form(value.is_string());
    facts.push_back({name, value.get<std::string>()});
  }
  return facts;
}

}  // namespace

void write_references(const std::string& path, const Facts& pairs, const References& references) {
  const std::vector<float>& values = references.log_probabilities;
  hdf5::File file = hdf5::File::create(path, reference_kind);
  file.write_format(reference_format, reference_version);
  hdf5::Object root = file.root();
  for (const Fact& fact : pairs) root.write_attribute(fact.name, fact.value);
  root.write_attribute(reference_facts, write_facts(references.model));
  root.write_attribute(reference_checksum, checksum_of_references(values));
  file.create_array(reference_array, hdf5::Type::float32,
                    {static_cast<std::int64_t>(values.size() / 2), 2})
      .write(hdf5::Type::float32, values.data());
  file.commit();
}

References read_references(const std::string& path, const Facts& pairs) {
  const hdf5::File file = hdf5::File::open(path, reference_kind);
  file.check_format(reference_format, reference_version);
  const hdf5::Object root = file.root();
  for (const Fact& fact : pairs) require_same_pairs(path, root, fact);
  References references = {read_facts(path, root), {}};
  const hdf5::Dataset array = file.dataset(reference_array);
  const std::vector<std::int64_t>& shape = array.shape();
  require(shape.size() == 2 && shape[1] == 2 && array.type() == hdf5::Type::float32, reference_kind,
          " '", path, "': ", reference_array, " is ", hdf5::name(array.type()), " ",
          hdf5::shape_text(shape), "; expected float32 (pairs, 2)");
  std::vector<float>& values = references.log_probabilities;
  values.resize(static_cast<std::size_t>(2 * shape[0]));
  array.read(hdf5::Type::float32, values.data());
  const std::string found = checksum_of_references(values),
                    expected = root.text_attribute(reference_checksum);
  require(found == expected, reference_kind, " '", path,
          "' is damaged: the checksum of its numbers is ", found, ", expected ", expected);
  return references;
}

}  // namespace ostrakon::data
