// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/scaling/study.hpp>

#include <charconv>
#include <filesystem>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/new_file.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/scaling/json_fields.hpp>

namespace ostrakon::scaling {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* format = "ostrakon-scaling-study";
constexpr int format_version = 1;
constexpr int most_ranks = 1 << 20;
constexpr std::int64_t most_file_bytes = std::int64_t{64} << 20;

template <class Enum, std::size_t count>
Enum named(const Fields& fields, const std::string& file, const char* key,
           const Named<Enum> (&names)[count]) {
  const std::string given = fields.text(key);
  const std::optional<Enum> found = find_named(names, given);
  std::string expected;
  for (const Named<Enum>& one : names) expected += text(expected.empty() ? "" : ", ", one.name);
  require(found.has_value(), "'", file, "': ", key, " = ", shown(given), "; expected one of ",
          expected);
  return *found;
}

Json json_of(const StudySize& size, int repeat) {
  Json json = {{"ranks", size.ranks},
               {"nodes", size.nodes},
               {"folder", size.folder},
               {"global_batch_size", size.global_batch_size},
               {"tokens_per_step", size.tokens_per_step},
               {"memory_bytes", size.memory_bytes},
               {"bytes_inside_nodes", size.bytes_inside_nodes},
               {"bytes_across_nodes", size.bytes_across_nodes},
               {"actions", size.actions},
               {"prediction", nullptr}};
  if (size.prediction) {
    const PredictedStep& step = *size.prediction;
    json["prediction"] = {{"step_seconds", step.seconds},
                          {"compute", step.compute},
                          {"communication", step.communication},
                          {"host", step.host},
                          {"copies", step.copies},
                          {"waiting", step.waiting},
                          {"source", step.source}};
  }
  json["runs"] = Json::array();
  for (int run = 1; run <= repeat; ++run) json["runs"].push_back(Study::run_folder(size, run));
  return json;
}

StudySize read_size(const Fields& fields, const std::string& file) {
  StudySize size;
  size.ranks = fields.small("ranks", 1);
  size.nodes = fields.small("nodes", 1);
  size.folder = fields.text("folder");
  size.global_batch_size = fields.integer("global_batch_size", 1);
  size.tokens_per_step = fields.integer("tokens_per_step", 1);
  size.memory_bytes = fields.integer("memory_bytes");
  size.bytes_inside_nodes = fields.integer("bytes_inside_nodes");
  size.bytes_across_nodes = fields.integer("bytes_across_nodes");
  size.actions = fields.integer("actions");
  if (fields.has("prediction")) {
    const Fields of_step = fields.object("prediction");
    size.prediction = PredictedStep{of_step.number("step_seconds"),  of_step.number("compute"),
                                    of_step.number("communication"), of_step.number("host"),
                                    of_step.number("copies"),        of_step.number("waiting"),
                                    of_step.text("source")};
    require(size.prediction->seconds > 0.0, "'", file, "': prediction.step_seconds of ",
            size.folder, " = 0; expected more than 0");
  }
  return size;
}

}  // namespace

std::string Study::run_folder(const StudySize& size, int run) {
  return text(size.folder, "/run-", run);
}

std::int64_t global_batch(Scaling scaling, std::int64_t of_deck, int base_ranks, int ranks) {
  if (scaling == Scaling::strong) return of_deck;
  require(of_deck <= (std::int64_t{1} << 40) / ranks && of_deck * ranks % base_ranks == 0,
          "--scaling weak: training.global_batch_size = ", of_deck, " on ", base_ranks,
          base_ranks == 1 ? " rank" : " ranks", " would be ", of_deck, " x ", ranks, " / ",
          base_ranks, " on ", ranks,
          " ranks; expected a whole number: give --ranks that are "
          "multiples of ",
          base_ranks);
  return of_deck * ranks / base_ranks;
}

std::vector<int> parse_ranks(const std::string& option, const std::string& given) {
  std::vector<int> ranks;
  const char* at = given.data();
  const char* const end = at + given.size();
  while (true) {
    int number = 0;
    const auto [stopped, failure] = std::from_chars(at, end, number);
    const bool is_valid = failure == std::errc() && number >= 1 && number <= most_ranks &&
                          (stopped == end || *stopped == ',') &&
                          (ranks.empty() || number > ranks.back());
    require(is_valid, option, " is ", shown(given),
            "; expected increasing numbers of ranks separated by commas, such as 1,2,4,8");
    ranks.push_back(number);
    if (stopped == end) return ranks;
    at = stopped + 1;
  }
}

Json study_json(const Study& study) {
  Json json = {{"format", format},
               {"format_version", format_version},
               {"version", study.version},
               {"build", study.build},
               {"deck", study.deck},
               {"scaling", name(study.scaling)},
               {"launcher", name(study.launcher)},
               {"ranks_per_node", study.ranks_per_node},
               {"steps", study.steps},
               {"warmup", study.warmup},
               {"trace_steps", study.trace_steps},
               {"repeat", study.repeat},
               {"sizes", Json::array()}};
  for (const StudySize& size : study.sizes) json["sizes"].push_back(json_of(size, study.repeat));
  return json;
}

Study read_study(const nlohmann::json& json, const std::string& file) {
  const Fields fields(json, file);
  fields.require_format(format, format_version);
  Study study;
  study.version = fields.text("version");
  study.build = fields.text("build");
  study.deck = fields.text("deck");
  study.scaling = named(fields, file, "scaling", scaling_names);
  study.launcher = named(fields, file, "launcher", launcher_names);
  study.ranks_per_node = fields.small("ranks_per_node");
  study.steps = fields.integer("steps", 1);
  study.warmup = fields.integer("warmup");
  study.trace_steps = fields.integer("trace_steps", 1);
  study.repeat = fields.small("repeat", 1);
  fields.each("sizes", [&](const Fields& size) { study.sizes.push_back(read_size(size, file)); });
  require(!study.sizes.empty(), "'", file, "': sizes is empty; expected one at least");
  return study;
}

void write_study(const std::string& folder, const Study& study) {
  replace_file((std::filesystem::path(folder) / "study.json").string(),
               study_json(study).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Study read_study_of(const std::string& folder) {
  const std::string file = (std::filesystem::path(folder) / "study.json").string();
  require(!is_missing(file), "'", file,
          "' does not exist; expected a folder that ostrakon-scale "
          "plan has written");
  return read_study(checkpoint::read_json_object(file, "scaling study", most_file_bytes), file);
}

}  // namespace ostrakon::scaling
