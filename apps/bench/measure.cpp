// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>

#include "bench.hpp"

namespace ostrakon::bench {

Seconds summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front()};
}

std::vector<Seconds> measure(comm::Communicator& world, double budget,
                             const std::vector<std::function<void()>>& works) {
  const auto seconds_of = [&](const std::function<void()>& work, int calls) {
    world.barrier();
    const Stopwatch timer;
    for (int call = 0; call < calls; ++call) work();
    return timer.seconds() / calls;
  };
  // A sample is so long that the clock's resolution and the barrier before it do not matter.
  constexpr double shortest_sample = 2e-4;
  std::vector<double> estimates;
  for (const auto& work : works) {
    seconds_of(work, 1);
    estimates.push_back(std::max(seconds_of(work, 1), 1e-9));
  }
  world.all_reduce_max(estimates.data(), static_cast<int>(estimates.size()));
  const double longest = *std::max_element(estimates.begin(), estimates.end());
  const double sample_seconds = std::max(longest, shortest_sample);
  const int samples = static_cast<int>(std::clamp(budget / sample_seconds, 3.0, 1000.0));
  std::vector<std::vector<double>> taken(works.size());
  for (int sample = 0; sample < samples; ++sample)
    for (std::size_t w = 0; w < works.size(); ++w) {
      const int calls = static_cast<int>(std::ceil(shortest_sample / estimates[w]));
      taken[w].push_back(seconds_of(works[w], std::max(1, calls)));
    }
  std::vector<Seconds> results;
  for (std::vector<double>& samples_of_work : taken) {
    world.all_reduce_max(samples_of_work.data(), samples);
    results.push_back(summarize(samples_of_work));
  }
  return results;
}

namespace {

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return print("%.1f us", seconds * 1e6);
  return seconds < 1.0 ? print("%.2f ms", seconds * 1e3) : print("%.3f s", seconds);
}

std::string shown(const nlohmann::ordered_json& value, Format format) {
  if (value.is_null()) return "-";
  switch (format) {
    case Format::text:
      return value.get<std::string>();
    case Format::count:
      return format_count(value.get<std::int64_t>());
    case Format::seconds:
      return seconds_text(value.get<double>());
    case Format::bytes:
      return format_bytes(value.get<std::int64_t>());
    case Format::number:
      return print("%.1f", value.get<double>());
    case Format::ratio:
      return print("%.2f", value.get<double>());
    case Format::percent:
      return print("%.1f %%", 100.0 * value.get<double>());
  }
  return "";
}

std::string in_columns(const std::vector<Column>& columns, const std::vector<std::string>& cells) {
  TextWriter line;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const bool last = c + 1 == columns.size();
    if (columns[c].format == Format::text)
      line << std::left << std::setw(last ? 0 : columns[c].width) << cells[c];
    else
      line << std::right << std::setw(columns[c].width) << cells[c];
    line << (last ? "\n" : "  ");
  }
  return line.str();
}

}  // namespace

Table::Table(std::string name, comm::Communicator& world, const Options& options,
             std::vector<Column> columns)
    : name_(std::move(name)),
      columns_(std::move(columns)),
      json_(options.json),
      is_root_(world.rank() == 0) {
  if (!is_root_ || json_) return;
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::cout << in_columns(columns_, titles) << std::flush;
}

void Table::row(const Row& values) {
  if (!is_root_) return;
  if (json_) {
    nlohmann::ordered_json object = {{"bench", name_}};
    for (std::size_t c = 0; c < columns_.size(); ++c) object[columns_[c].key] = values[c];
    std::cout << object.dump() << std::endl;
    return;
  }
  std::vector<std::string> cells;
  for (std::size_t c = 0; c < columns_.size(); ++c)
    cells.push_back(shown(values[c], columns_[c].format));
  std::cout << in_columns(columns_, cells) << std::flush;
}

void say(comm::Communicator& world, const Options& options, const std::string& text) {
  if (world.rank() == 0 && !options.json) std::cout << text << std::flush;
}

Training::Training(MPI_Comm parent, const config::Settings& settings, const Make& make)
    : mesh(parent, static_cast<int>(settings.ranks_per_node), settings.shard_group,
           static_cast<int>(settings.pipeline)),
      world(mesh.world()),
      trainer(make ? make(mesh) : train::make_trainer(settings, mesh)),
      dataset(data::open_dataset(settings.data, data::Split::training,
                                 settings.training.sequence_length, settings.model.vocabulary,
                                 settings.training.seed, world)) {}

void Training::prepare() {
  trainer.require_memory();
  trainer.allocate();
  trainer.initialize();
}

}  // namespace ostrakon::bench
