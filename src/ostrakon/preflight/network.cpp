// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/preflight/network.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/preflight/judge.hpp>
#include <ostrakon/preflight/system_file.hpp>

namespace ostrakon::preflight {
namespace {

namespace fs = std::filesystem;

constexpr const char* loopback = "lo";
constexpr const char* across_name = "sent to other hosts";
constexpr const char* inside_name = "sent inside the host";
constexpr const char* interface_name = "sent by interface ";
constexpr const char* nccl_name = "NCCL's network";
constexpr const char* port_advice =
    "look at the port and its cable (ibstat), or leave the host out";
constexpr const char* tcp_advice =
    "Open MPI: OMPI_MCA_pml=ucx, and UCX_TLS and UCX_NET_DEVICES unset or with the port; MPICH and "
    "Intel MPI: FI_PROVIDER=verbs, psm3 or cxi as the site says; see docs/operations.md";
constexpr const char* nccl_advice =
    "NCCL_IB_DISABLE unset or 0, NCCL_IB_HCA with the ports, NCCL_NET_PLUGIN as the site says; "
    "NCCL_DEBUG=INFO tells why it did not take them";

/// The entries of a folder, by name; none where it can't be read.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none))
    all.push_back(entry.path());
  std::sort(all.begin(), all.end());
  return all;
}

/// The file that NCCL of this process writes; "" where it has not been asked.
std::string& nccl_file() {
  static std::string file;
  return file;
}

double number(const std::string& value) {
  double number = 0.0;
  TextReader(value) >> number;
  return number;
}

/// What one host has sent, and by what.
struct Host {
  std::vector<int> ranks;
  double across = 0.0, inside = 0.0;           ///< bytes that ranks have sent
  std::map<std::string, double> by_interface;  ///< bytes
  std::string port;                            ///< an active one, or a device; empty: none
  std::string nccl;

  /// The interface that sends at least half of `bytes`; "" if there is none.
  std::string carrier(bool on_loopback, double bytes) const {
    std::string name;
    double most = 0.5 * bytes;
    if (bytes == 0.0) return name;
    for (const auto& [interface, sent] : by_interface) {
      if ((interface == loopback) != on_loopback || sent < most) continue;
      name = interface;
      most = sent;
    }
    return name;
  }
};

std::map<std::string, Host> hosts_of(const Table& table) {
  std::map<std::string, Host> hosts;
  const std::string prefix = interface_name;
  for (int rank = 0; rank < table.ranks(); ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    Host& host = hosts[table.hosts[place]];
    host.ranks.push_back(rank);
    for (const Fact& fact : table.answers[place].facts) {
      const bool is_port = fact.name.rfind("port ", 0) == 0;
      if (fact.name == across_name) host.across += number(fact.value);
      if (fact.name == inside_name) host.inside += number(fact.value);
      if (fact.name == nccl_name) host.nccl = fact.value;
      if (fact.name.rfind(prefix, 0) == 0) {
        double& sent = host.by_interface[fact.name.substr(prefix.size())];
        sent = std::max(sent, number(fact.value));
      }
      if ((is_port && fact.value.rfind("ACTIVE", 0) == 0) || fact.name.rfind("device ", 0) == 0)
        host.port = fact.name;
    }
  }
  return hosts;
}

/// Adds what some hosts have in common: one finding, without hosts to leave out, if it is all of
/// them.
class ByHost {
 public:
  ByHost(std::size_t hosts, Findings& to) : hosts_(hosts), to_(to) {}
  ~ByHost() {
    if (found_.size() == hosts_ && hosts_ > 1) {
      found_.front().ranks.clear();
      found_.front().hosts.clear();
      found_.resize(1);
    }
    to_.insert(to_.end(), found_.begin(), found_.end());
  }
  ByHost(const ByHost&) = delete;
  ByHost& operator=(const ByHost&) = delete;
  void add(const Finding& finding) { found_.push_back(finding); }

 private:
  std::size_t hosts_;
  Findings& to_;
  Findings found_;
};

Findings judge_ports(const Table& table) {
  Table ports = table;
  for (Answer& answer : ports.answers) {
    Facts kept;
    for (const Fact& fact : answer.facts)
      if (fact.name.rfind("port ", 0) == 0 || fact.name.rfind("device ", 0) == 0)
        kept.push_back(fact);
    answer.facts = kept;
  }
  return judge_facts(ports, "network", true, port_advice);
}

Findings judge_network(const Table& table) {
  Findings all = judge_ports(table);
  const std::map<std::string, Host> hosts = hosts_of(table);
  ByHost across(hosts.size(), all), inside(hosts.size(), all), nccl(hosts.size(), all);
  for (const auto& [name, host] : hosts) {
    const std::string tcp = host.carrier(false, host.across);
    if (!tcp.empty() && !host.port.empty())
      across.add({"network",
                  text("MPI sends to other hosts by TCP over ", tcp, ", although there is the ",
                       host.port),
                  host.ranks,
                  {name},
                  tcp_advice});
    else if (!tcp.empty())
      across.add({"network",
                  text("MPI sends to other hosts by TCP over ", tcp,
                       "; the system lists no active port for RDMA"),
                  host.ranks,
                  {name},
                  "nothing to do, if this is the network that there is",
                  false});
    if (!host.carrier(true, host.inside).empty())
      inside.add({"network",
                  "MPI sends to ranks of the same host by TCP, not in shared memory",
                  host.ranks,
                  {name},
                  "Open MPI: OMPI_MCA_btl or OMPI_MCA_pml as the site says, with vader or sm in a "
                  "list of btl; others: see docs/operations.md"});
    if (host.nccl == "Socket" && host.across > 0.0 && !host.port.empty())
      nccl.add({"network",
                text("NCCL sends to other hosts by TCP, although there is the ", host.port),
                host.ranks,
                {name},
                nccl_advice});
  }
  return all;
}

}  // namespace

Facts fast_ports(const std::string& sys) {
  Facts facts;
  for (const fs::path& device : entries(fs::path(sys) / "class/infiniband"))
    for (const fs::path& port : entries(device / "ports")) {
      std::string state = first_line_of(port / "state");  // "4: ACTIVE"
      if (const std::size_t colon = state.find(": "); colon != std::string::npos)
        state = state.substr(colon + 2);
      facts.push_back({text("port ", device.filename().string(), "/", port.filename().string()),
                       text(state, ", ", first_line_of(port / "rate"))});
    }
  for (const fs::path& device : entries(fs::path(sys) / "class/cxi"))
    facts.push_back({"device " + device.filename().string(), "there"});
  return facts;
}

std::map<std::string, std::int64_t> sent_by_interface(const std::string& text) {
  std::map<std::string, std::int64_t> sent;
  TextReader lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    TextReader name(line.substr(0, colon)), numbers(line.substr(colon + 1));
    std::string interface;
    std::int64_t value = 0;
    constexpr int column = 9;  // of the bytes sent
    int read = 0;
    while (read < column && numbers >> value) ++read;
    if (name >> interface && read == column) sent[interface] = value;
  }
  return sent;
}

std::string nccl_network(const std::string& text) {
  const std::string says = "Using network ";
  const std::size_t begin = text.find(says);
  if (begin == std::string::npos) return "";
  const std::size_t end = std::min(text.find('\n', begin), text.size());
  return text.substr(begin + says.size(), end - begin - says.size());
}

std::vector<int> pairs_of(const std::vector<std::string>& hosts, bool across) {
  const int ranks = static_cast<int>(hosts.size());
  std::vector<int> others(hosts.size(), -1);
  for (int bit = 1; bit < ranks; bit *= 2)
    for (int one = 0; one < ranks; ++one) {
      const int other = one ^ bit;
      if (other < one || other >= ranks) continue;
      const auto a = static_cast<std::size_t>(one), b = static_cast<std::size_t>(other);
      if (others[a] >= 0 || others[b] >= 0 || across != (hosts[a] != hosts[b])) continue;
      others[a] = other;
      others[b] = one;
    }
  return others;
}

void ask_nccl() {
#if defined(OSTRAKON_HAVE_NCCL)
  if (std::getenv("NCCL_DEBUG") != nullptr || std::getenv("NCCL_DEBUG_FILE") != nullptr) return;
  std::error_code none;
  const fs::path folder = fs::temp_directory_path(none);
  if (none) return;
  nccl_file() = (folder / text("ostrakon-nccl-", getpid())).string();
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "INIT,NET", 1);
  setenv("NCCL_DEBUG_FILE", nccl_file().c_str(), 1);
#endif
}

Check network(comm::Communicator& world) {
  Check check;
  check.name = "network";
  check.measure = [&world] {
    Answer answer;
    answer.facts = fast_ports();
    const std::vector<std::string> hosts = world.gather_texts(host_name());
    const auto place = static_cast<std::size_t>(world.rank());
    constexpr int message_bytes = 1 << 20, messages = 32;
    const std::vector<char> data(message_bytes);
    std::vector<char> received(message_bytes);
    world.barrier();
    const auto before = sent_by_interface(system_file("/proc/self/net/dev"));
    world.barrier();
    for (const bool across : {true, false}) {
      const int other = pairs_of(hosts, across)[place];
      for (int i = 0; other >= 0 && i < messages; ++i)
        comm::check_mpi(
            MPI_Sendrecv(data.data(), message_bytes, MPI_CHAR, other, 0, received.data(),
                         message_bytes, MPI_CHAR, other, 0, world.mpi(), MPI_STATUS_IGNORE),
            "MPI_Sendrecv");
      answer.facts.push_back({across ? across_name : inside_name,
                              std::to_string(other >= 0 ? messages * message_bytes : 0)});
    }
    world.barrier();
    for (const auto& [name, sent] : sent_by_interface(system_file("/proc/self/net/dev"))) {
      const auto found = before.find(name);
      if (found != before.end() && sent > found->second)
        answer.facts.push_back({interface_name + name, std::to_string(sent - found->second)});
    }
    if (!nccl_file().empty()) {
      if (const std::string says = nccl_network(system_file(nccl_file())); !says.empty())
        answer.facts.push_back({nccl_name, says});
      std::error_code none;
      fs::remove(nccl_file(), none);
    }
    return answer;
  };
  check.judge = judge_network;
  return check;
}

}  // namespace ostrakon::preflight
