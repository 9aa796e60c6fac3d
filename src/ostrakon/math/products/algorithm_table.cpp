// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/algorithm_table.hpp>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hash.hpp>

namespace ostrakon::math {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* format_name = "Ostrakon products 1";

std::string hex_of(const std::array<std::uint64_t, 8>& words) {
  std::string all;
  for (const std::uint64_t word : words) all += format_hex(word);
  return all;
}

std::array<std::uint64_t, 8> words_of(const std::string& hex) {
  constexpr std::size_t digits = 16;
  std::array<std::uint64_t, 8> words{};
  bool fits = hex.size() == words.size() * digits;
  for (std::size_t i = 0; fits && i < words.size(); ++i) {
    const char* const begin = hex.data() + i * digits;
    const auto [end, failure] = std::from_chars(begin, begin + digits, words[i], 16);
    fits = failure == std::errc() && end == begin + digits;
  }
  require(fits, "opaque = '", hex, "', expected 128 hexadecimal digits");
  return words;
}

ElementType element_type_of(const std::string& given) {
  const auto found = find_named(element_type_names, given);
  require(found.has_value(), "'", given, "' is no type; expected fp64, fp32, bf16 or fp16");
  return *found;
}

Json json_of(const ProductKind& kind) {
  return {{"factors", name(kind.factors)},
          {"result", name(kind.result)},
          {"a_transposed", kind.turn_a},
          {"b_transposed", kind.turn_b},
          {"bias", kind.has_bias},
          {"several", kind.is_batched},
          {"m", kind.m},
          {"n", kind.n},
          {"k", kind.k},
          {"alignments", {kind.align_a, kind.align_b, kind.align_c}}};
}

ProductKind kind_of(const Json& from) {
  ProductKind kind;
  kind.factors = element_type_of(from.at("factors").get<std::string>());
  kind.result = element_type_of(from.at("result").get<std::string>());
  kind.turn_a = from.at("a_transposed").get<bool>();
  kind.turn_b = from.at("b_transposed").get<bool>();
  kind.has_bias = from.at("bias").get<bool>();
  kind.is_batched = from.at("several").get<bool>();
  kind.m = from.at("m").get<std::int64_t>();
  kind.n = from.at("n").get<std::int64_t>();
  kind.k = from.at("k").get<std::int64_t>();
  const Json& alignments = from.at("alignments");
  require(alignments.size() == 3, "alignments has ", alignments.size(), " numbers, expected 3");
  kind.align_a = alignments.at(0).get<std::int64_t>();
  kind.align_b = alignments.at(1).get<std::int64_t>();
  kind.align_c = alignments.at(2).get<std::int64_t>();
  return kind;
}

}  // namespace

std::string AlgorithmTable::unlike(const ProductLibrary& other) const {
  if (library != other.version())
    return text("its algorithms are of ", library, ", this build multiplies by ", other.version());
  if (device != other.device())
    return text("its algorithms are for ", device, ", this device is ", other.device());
  return "";
}

std::string AlgorithmTable::digest() const {
  Hasher hash;
  hash.add(library, device);
  for (const auto& [kind, algorithm] : algorithms) {
    hash.add(text_of(kind));
    for (const std::uint64_t word : algorithm.opaque) hash.add(word);
  }
  return format_hex(hash.value());
}

std::string AlgorithmTable::json() const {
  Json products = Json::array();
  for (const auto& [kind, algorithm] : algorithms) {
    Json attributes = Json::object();
    for (const Fact& fact : algorithm.attributes) attributes[fact.name] = fact.value;
    products.push_back({{"product", text_of(kind)},
                        {"kind", json_of(kind)},
                        {"algorithm", attributes},
                        {"microseconds", std::round(algorithm.seconds * 1e7) / 10},
                        {"opaque", hex_of(algorithm.opaque)}});
  }
  const Json all = {
      {"format", format_name}, {"library", library}, {"device", device}, {"products", products}};
  return all.dump(1) + "\n";
}

AlgorithmTable AlgorithmTable::read(const std::string& text_of_table) {
  AlgorithmTable table;
  try {
    const Json all = Json::parse(text_of_table);
    const auto format = all.at("format").get<std::string>();
    require(format == format_name, "format = '", format, "', expected '", format_name, "'");
    table.library = all.at("library").get<std::string>();
    table.device = all.at("device").get<std::string>();
    for (const Json& one : all.at("products")) {
      Algorithm algorithm;
      for (const auto& [key, value] : one.at("algorithm").items())
        algorithm.attributes.push_back({key, value.get<std::string>()});
      algorithm.seconds = one.at("microseconds").get<double>() * 1e-6;
      algorithm.opaque = words_of(one.at("opaque").get<std::string>());
      table.algorithms[kind_of(one.at("kind"))] = algorithm;
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(text("no table of algorithms of products: ", error.what()));
  }
  return table;
}

}  // namespace ostrakon::math
