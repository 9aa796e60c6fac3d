// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/watch/flight.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/process.hpp>

namespace ostrakon::watch {
namespace {

nlohmann::ordered_json json_of(const Progress::Past& past, double now) {
  nlohmann::ordered_json one = {
      {"action", past.action}, {"step", past.step}, {"began_before", now - past.begin}};
  if (past.end > 0.0)
    one["seconds"] = past.end - past.begin;
  else
    one["has_ended"] = false;
  return one;
}

}  // namespace

void write_flight_record(const std::string& folder, const Progress& progress, const Record& record,
                         const std::string& reason) {
  const double now = seconds_now();
  nlohmann::ordered_json json = {{"rank", record.rank},
                                 {"host", host_name()},
                                 {"process", static_cast<std::int64_t>(::getpid())},
                                 {"time", utc_time()},
                                 {"reason", reason},
                                 {"step", record.step},
                                 {"occupation", traits(record.occupation).name},
                                 {"background", traits(record.background).name},
                                 {"plan", record.in_run ? plan::name(record.purpose) : ""},
                                 {"action", record.what},
                                 {"mpi", record.call},
                                 {"seconds", record.seconds},
                                 {"limit", record.limit},
                                 {"streams", nlohmann::ordered_json::object()}};
  for (const Named<plan::Stream>& stream : plan::stream_names) {
    nlohmann::ordered_json actions = nlohmann::ordered_json::array();
    for (const Progress::Past& past : progress.actions(stream.value))
      actions.push_back(json_of(past, now));
    if (!actions.empty()) json["streams"][stream.name] = std::move(actions);
  }
  ::mkdir(folder.c_str(), 0777);
  std::ofstream file(folder + "/rank-" + std::to_string(record.rank) + ".json");
  file << json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
}

}  // namespace ostrakon::watch
