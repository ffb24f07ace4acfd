// Packets under the flow engine's interface: ns-3's TCP between the hosts of a fabric, each flow on
// the links it is given.
//
//     flow due -> a lane (TCP connection) of its pair -> packets hop by hop along the flow's links,
//     acknowledgements back along the same -> last byte read: finished, the lane is free again
//
// Hosts have ns-3's own internet stack. A switch is a node that sends what comes in out of the next
// link of the packet's flow; circuits are in the links a flow is given. Nothing is lost: queues are
// deep, and a lane has at most a window of packets on the way, as NICs under flow control have.
// A flow that has to stand still is given the link without capacity: its sender stops, what is on
// the way arrives by the old links.
//
// Bytes and rates come scaled; times are ns-3's, to a picosecond. ns-3 has one simulator a process,
// so there is one engine at a time.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

using namespace ns3;

namespace {

constexpr int kReady = 0, kFinished = 1;
constexpr int kBroken = -2, kAtRest = 0, kAtTime = 1, kWatched = 2, kBreathes = 3;
constexpr uint32_t kHeaders = 40;     // IPv4 and TCP
constexpr uint32_t kAck = 128;        // bytes of a packet without data, at most
constexpr uint64_t kBreath = 200000;  // packets sent on by switches between two breaths
constexpr uint16_t kListens = 5001;                        // of every host
constexpr uint16_t kFirstPort = 10000, kLastPort = 65535;  // of a host's first lane, and last
constexpr size_t kPaths = 8;  // of a lane that are remembered for packets on the way
const double kNever = std::numeric_limits<double>::infinity();

// Acknowledgements go before data, as they do in a traffic class of their own: behind the data of
// the other way they would come in bursts, and leave cables idle.
class AcksFirst : public Queue<Packet> {
 public:
  static TypeId GetTypeId() {
    static TypeId id = TypeId("rfabric::AcksFirst")
                           .SetParent<Queue<Packet>>()
                           .AddConstructor<AcksFirst>();
    return id;
  }
  bool Enqueue(Ptr<Packet> packet) override {
    auto at = GetContainer().end();
    if (IsAck(packet))
      for (at = GetContainer().begin(); at != GetContainer().end() && IsAck(*at);) ++at;
    return DoEnqueue(at, packet);
  }
  Ptr<Packet> Dequeue() override { return DoDequeue(GetContainer().begin()); }
  Ptr<Packet> Remove() override { return DoRemove(GetContainer().begin()); }
  Ptr<const Packet> Peek() const override { return DoPeek(GetContainer().begin()); }

 private:
  static bool IsAck(Ptr<const Packet> packet) { return packet->GetSize() <= kAck; }
};

struct Engine;

struct Link {  // one way
  int from, to;
  Ptr<NetDevice> out;
  double bytes = 0;  // of payload
};

struct Lane;

struct Flow {
  double start, gap, latency;
  uint64_t size;
  std::vector<int64_t> after, path;
  int64_t unmet = 0;
  double begun = std::numeric_limits<double>::quiet_NaN(), finish = kNever;
  uint64_t handed = 0, received = 0;  // bytes: to TCP, and read at the far end
  bool ready = false, active = false, stands = false, watched[2] = {false, false};
  Lane *lane = nullptr;
  std::vector<int64_t> followers;
};

struct Lane {
  Engine *engine;
  int src, dst;
  uint16_t port;
  Ptr<Socket> sender, receiver;
  bool connected = false;
  int64_t flow = -1;
  std::deque<std::vector<int64_t>> paths;  // of its flow, newest first, and those of before

  void Take(const std::vector<int64_t> &path);
  void Feed();
  void Read(Ptr<Socket> socket);
};

struct Event {
  double time;
  int64_t flow;
  int8_t kind;
};

struct Engine {
  uint32_t mtu;
  int64_t dark;     // the link without capacity
  bool once = false;  // a lane carries one flow
  std::vector<Ptr<Node>> nodes;
  std::vector<Link> links;
  std::vector<bool> is_host;
  std::vector<Ptr<Socket>> listeners;  // by node
  std::unordered_map<NetDevice *, int64_t> incoming;  // the link that ends at a device
  std::vector<std::unique_ptr<Flow>> flows;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::unordered_map<uint64_t, std::vector<Lane *>> idle;     // by pair
  std::unordered_map<uint64_t, Lane *> by_key;                // by pair and port
  std::unordered_map<int, uint16_t> ports;                    // the last of each host
  std::vector<Event> events;
  int64_t finished = 0, coming = 0, moving = 0;  // coming: starts that are scheduled
  uint64_t passed = 0;
  EventId after;  // the stop that is under way
  bool stopping = false, breath = false, timed = false;
  double shown = 0;  // the time of day as it was asked for, finer than ns-3 has it
  std::string error;

  double Now() const { return Simulator::Now().GetSeconds(); }

  static uint64_t Pair(int src, int dst) { return uint64_t(src) << 40 | uint64_t(dst) << 16; }

  static Ipv4Address AddressOf(int node) { return Ipv4Address(0x0a000001u + uint32_t(node)); }

  static int NodeOf(uint32_t address) { return int(address - 0x0a000001u); }

  // --- the network

  void Build(int64_t n_nodes, const int8_t *host, int64_t n_links, const int64_t *from,
             const int64_t *to, const double *rate, const double *delay) {
    for (int64_t i = 0; i < n_nodes; ++i) nodes.push_back(CreateObject<Node>());
    InternetStackHelper stack;
    for (int64_t i = 0; i < n_nodes; ++i)
      if (host[i]) stack.Install(nodes[i]);
    is_host.assign(host, host + n_nodes);
    listeners.resize(n_nodes);
    links.resize(n_links);
    for (int64_t k = 0; k + 1 < n_links; k += 2)
      Cable(k, from[k], to[k], rate[k], rate[k + 1], delay[k]);
    for (int64_t i = 0; i < n_nodes; ++i)
      if (host[i]) Attach(int(i));
  }

  void Cable(int64_t k, int a, int b, double there, double back, double delay) {
    PointToPointHelper cable;
    cable.SetDeviceAttribute("Mtu", UintegerValue(mtu));
    cable.SetChannelAttribute("Delay", TimeValue(Seconds(delay)));
    cable.DisableFlowControl();
    NetDeviceContainer ends = cable.Install(nodes[a], nodes[b]);
    ends.Get(0)->SetAttribute("DataRate", DataRateValue(DataRate(uint64_t(there))));
    ends.Get(1)->SetAttribute("DataRate", DataRateValue(DataRate(uint64_t(back))));
    for (int i = 0; i < 2; ++i) {
      Ptr<AcksFirst> queue = CreateObject<AcksFirst>();
      queue->SetMaxSize(QueueSize("4000000p"));
      DynamicCast<PointToPointNetDevice>(ends.Get(i))->SetQueue(queue);
    }
    links[k] = {a, b, ends.Get(0)};
    links[k + 1] = {b, a, ends.Get(1)};
    incoming[PeekPointer(ends.Get(0))] = k + 1;
    incoming[PeekPointer(ends.Get(1))] = k;
    for (int i = 0; i < 2; ++i) {
      Ptr<Node> node = ends.Get(i)->GetNode();
      if (!node->GetObject<Ipv4>())
        node->RegisterProtocolHandler(MakeCallback(&Engine::Forward, this),
                                      Ipv4L3Protocol::PROT_NUMBER, ends.Get(i));
    }
  }

  // A host's address, and everything else behind its one cable.
  void Attach(int node) {
    Ptr<Ipv4> ip = nodes[node]->GetObject<Ipv4>();
    Ptr<NetDevice> device;
    for (uint32_t i = 0; i < nodes[node]->GetNDevices(); ++i)
      if (DynamicCast<PointToPointNetDevice>(nodes[node]->GetDevice(i)))
        device = nodes[node]->GetDevice(i);
    uint32_t interface = ip->AddInterface(device);
    ip->AddAddress(interface, Ipv4InterfaceAddress(AddressOf(node), Ipv4Mask::GetOnes()));
    ip->SetMetric(interface, 1);
    ip->SetUp(interface);
    Ipv4StaticRoutingHelper routing;
    routing.GetStaticRouting(ip)->SetDefaultRoute(Ipv4Address::GetBroadcast(), interface);
  }

  // A switch sends on: the packet's addresses and ports say which lane, and which way.
  void Forward(Ptr<NetDevice> device, Ptr<const Packet> packet, uint16_t protocol, const Address &,
               const Address &, NetDevice::PacketType) {
    uint8_t head[24];
    int here = int(device->GetNode()->GetId() - nodes[0]->GetId());
    if (packet->CopyData(head, sizeof head) < sizeof head || head[0] != 0x45 || head[9] != 6)
      return Broken("something else than TCP came", here);
    auto word = [&](int at) {
      return uint32_t(head[at]) << 24 | uint32_t(head[at + 1]) << 16 |
             uint32_t(head[at + 2]) << 8 | head[at + 3];
    };
    int src = NodeOf(word(12)), dst = NodeOf(word(16));
    uint16_t from = uint16_t(head[20] << 8 | head[21]), to = uint16_t(head[22] << 8 | head[23]);
    bool back = from == kListens;
    auto lane = by_key.find(back ? Pair(dst, src) | to : Pair(src, dst) | from);
    if (lane == by_key.end()) return Broken("a packet of no lane came", here);
    int64_t came = incoming[PeekPointer(device)], next = -1;
    for (const auto &path : lane->second->paths)
      if ((next = Next(path, came, back)) >= 0) break;
    if (next < 0) return Broken("a packet came that is on no way of its flow", here);
    Link &link = links[next], &into = links[came];
    uint32_t size = packet->GetSize();
    double payload = size > kAck ? size - kHeaders : 0;
    link.bytes += payload;
    if (is_host[into.from]) into.bytes += payload;
    link.out->Send(packet->Copy(), link.out->GetBroadcast(), protocol);
    if (++passed % kBreath == 0) {
      breath = true;
      Simulator::Stop();
    }
  }

  // The link after the one a packet came by; a way may lead through a switch more than once.
  static int64_t Next(const std::vector<int64_t> &path, int64_t came, bool back) {
    auto at = std::find(path.begin(), path.end(), back ? came ^ 1 : came);
    if (at == path.end()) return -1;
    if (back) return at == path.begin() ? -1 : *(at - 1) ^ 1;
    return at + 1 == path.end() ? -1 : *(at + 1);
  }

  void Broken(const char *why, int at) {
    if (error.empty()) error = std::string(why) + " at node " + std::to_string(at);
    Simulator::Stop();
  }

  // --- flows

  void Ready(int64_t id) {
    Flow &flow = *flows[id];
    double at = std::max(flow.start, Now() + (flow.after.empty() ? 0.0 : flow.gap));
    flow.ready = true;
    if (!flow.after.empty()) Tell(id, kReady);
    ++coming;
    Simulator::Schedule(Seconds(std::max(at - Now(), 0.0)), &Engine::Start, this, id);
  }

  void Start(int64_t id) {
    Flow &flow = *flows[id];
    --coming;
    flow.begun = Now();
    if (!flow.size) {
      Simulator::Schedule(Seconds(flow.latency), &Engine::Finish, this, id);
      ++coming;
      return;
    }
    flow.active = true;
    moving += !flow.stands;
    Give(id);
  }

  // A lane for the flow: one that is free, or a new connection.
  void Give(int64_t id) {
    Flow &flow = *flows[id];
    if (flow.stands && !flow.lane) return;  // it has no way yet
    int src = links[flow.path.front()].from, dst = links[flow.path.back()].to;
    auto &free = idle[Pair(src, dst)];
    Lane *lane;
    if (!free.empty()) {
      lane = free.back();
      free.pop_back();
    } else {
      lane = Open(src, dst);
    }
    lane->flow = id;
    lane->Take(flow.path);
    flow.lane = lane;
    if (!lane->sender) Connect(lane);
    lane->Feed();
  }

  Lane *Open(int src, int dst) {
    lanes.push_back(std::make_unique<Lane>());
    Lane *lane = lanes.back().get();
    uint16_t &last = ports[src];
    if (last == kLastPort)
      Broken("no port is left for another connection (simulate fewer flows at once)", src);
    last = last && last < kLastPort ? last + 1 : kFirstPort;
    lane->engine = this;
    lane->src = src, lane->dst = dst, lane->port = last;
    by_key[Pair(src, dst) | last] = lane;
    return lane;
  }

  void Connect(Lane *lane) {
    TypeId tcp = TcpSocketFactory::GetTypeId();
    Listen(lane->dst);
    lane->sender = Socket::CreateSocket(nodes[lane->src], tcp);
    lane->sender->Bind(InetSocketAddress(AddressOf(lane->src), lane->port));
    lane->sender->SetConnectCallback(MakeCallback(&Engine::Connected, this),
                                     MakeNullCallback<void, Ptr<Socket>>());
    lane->sender->SetSendCallback(MakeCallback(&Engine::MaySend, this));
    by_socket[PeekPointer(lane->sender)] = lane;
    lane->sender->Connect(InetSocketAddress(AddressOf(lane->dst), kListens));
  }

  void Listen(int node) {
    if (listeners[node]) return;
    listeners[node] = Socket::CreateSocket(nodes[node], TcpSocketFactory::GetTypeId());
    listeners[node]->Bind(InetSocketAddress(AddressOf(node), kListens));
    listeners[node]->Listen();
    listeners[node]->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address &>(),
                                       MakeCallback(&Engine::Accepted, this));
  }

  std::unordered_map<Socket *, Lane *> by_socket;

  void Accepted(Ptr<Socket> socket, const Address &from) {
    InetSocketAddress peer = InetSocketAddress::ConvertFrom(from);
    Address own;
    socket->GetSockName(own);
    int src = NodeOf(peer.GetIpv4().Get());
    int dst = NodeOf(InetSocketAddress::ConvertFrom(own).GetIpv4().Get());
    Lane *lane = by_key[Pair(src, dst) | peer.GetPort()];
    lane->receiver = socket;
    by_socket[PeekPointer(socket)] = lane;
    socket->SetRecvCallback(MakeCallback(&Engine::MayRead, this));
  }

  void Connected(Ptr<Socket> socket) {
    Lane *lane = by_socket[PeekPointer(socket)];
    lane->connected = true;
    lane->Feed();
  }

  void MaySend(Ptr<Socket> socket, uint32_t) { by_socket[PeekPointer(socket)]->Feed(); }

  void MayRead(Ptr<Socket> socket) { by_socket[PeekPointer(socket)]->Read(socket); }

  void Finish(int64_t id) {
    Flow &flow = *flows[id];
    if (!flow.size) --coming;
    flow.finish = Now();
    ++finished;
    if (flow.active) {
      flow.active = false;
      moving -= !flow.stands;
      flow.lane->flow = -1;
      if (!once) idle[Pair(flow.lane->src, flow.lane->dst)].push_back(flow.lane);
      flow.lane = nullptr;
    }
    Tell(id, kFinished);
    for (int64_t follower : flow.followers)
      if (!--flows[follower]->unmet) Ready(follower);
  }

  void Tell(int64_t id, int8_t kind) {
    bool &watched = flows[id]->watched[kind];
    if (!watched) return;
    watched = false;
    events.push_back({Now(), id, kind});
    if (!stopping) {
      stopping = true;  // with all that happens at this instant
      after = Simulator::ScheduleNow(&Engine::AfterOthers, this, 4);
    }
  }

  void AfterOthers(int rounds) {
    if (rounds)
      after = Simulator::ScheduleNow(&Engine::AfterOthers, this, rounds - 1);
    else
      Simulator::Stop();
  }

  void Timed() {
    timed = true;
    Simulator::Stop();
  }

  int Run(double until) {
    Simulator::Cancel(after);  // what was told before anything ran has stopped nothing yet
    events.clear();
    stopping = breath = timed = false;
    for (int64_t id : told_ready) Tell(id, kReady);
    told_ready.clear();
    if (!events.empty()) return Sorted();
    shown = std::max(shown, Now());
    EventId stop;
    if (std::isfinite(until))
      stop = Simulator::Schedule(Seconds(std::max(until - Now(), 0.0)), &Engine::Timed, this);
    else if (!coming && !moving)
      return kAtRest;
    Simulator::Run();
    if (error.empty() && !timed && !breath && events.empty() && moving) Stuck();
    if (!timed) Simulator::Cancel(stop);
    if (!error.empty()) return kBroken;
    shown = timed && events.empty() ? until : std::max(shown, Now());
    if (!events.empty()) return Sorted();
    if (timed) return kAtTime;
    return breath ? kBreathes : kAtRest;
  }

  // ns-3 has nothing left to do, yet some flow has bytes left.
  void Stuck() {
    for (size_t id = 0; id < flows.size() && error.empty(); ++id)
      if (flows[id]->active && !flows[id]->stands)
        Broken(("flow " + std::to_string(id) + " stands still, " +
                std::to_string(flows[id]->size - flows[id]->received) + " bytes left,").c_str(),
               links[flows[id]->path.back()].to);
  }

  int Sorted() {
    std::sort(events.begin(), events.end(),
              [](const Event &a, const Event &b) { return a.flow < b.flow; });
    return kWatched;
  }

  std::vector<int64_t> told_ready;  // watched when they were ready already

  void Reroute(int64_t id, const int32_t *first, const int32_t *last) {
    Flow &flow = *flows[id];
    if (std::isfinite(flow.finish)) return;
    bool stood = flow.stands;
    std::vector<int64_t> path(first, last);
    flow.stands = !path.empty() && std::find(path.begin(), path.end(), dark) != path.end();
    if (!flow.stands) flow.path = path;
    if (!flow.active) return;
    moving += int(stood) - int(flow.stands);
    if (flow.stands) return;
    if (flow.lane) {
      flow.lane->Take(flow.path);
      flow.lane->Feed();
    } else {
      Give(id);
    }
  }
};

// What is on the way goes on along the links of before.
void Lane::Take(const std::vector<int64_t> &path) {
  if (!paths.empty() && paths.front() == path) return;
  paths.push_front(path);
  if (paths.size() > kPaths) paths.pop_back();
}

void Lane::Feed() {
  if (!connected || flow < 0) return;
  Flow &of = *engine->flows[flow];
  if (of.stands) return;
  while (of.handed < of.size) {
    uint32_t room = sender->GetTxAvailable();
    uint64_t piece = std::min<uint64_t>(of.size - of.handed, room);
    if (!piece) return;
    int sent = sender->Send(Create<Packet>(uint32_t(piece)));
    if (sent <= 0) return;
    of.handed += uint64_t(sent);
  }
}

void Lane::Read(Ptr<Socket> socket) {
  while (Ptr<Packet> packet = socket->Recv()) {
    if (!packet->GetSize()) return;
    if (flow < 0) return engine->Broken("bytes of no flow came", dst);
    Flow &of = *engine->flows[flow];
    of.received += packet->GetSize();
    if (of.received == of.size) engine->Finish(flow);
  }
}

}  // namespace

extern "C" {

// Links come in pairs, there and back; the last has no capacity. bit/s, s, bytes of a packet and of
// a window; segments of a first window, 0: all, lanes stay open; else each flow has its own, which
// starts slowly. Null while another engine is alive.
static Engine *alive = nullptr;

void *rf_packets(int64_t nodes, const int8_t *host, int64_t links, const int64_t *from,
                 const int64_t *to, const double *rate, const double *delay, int64_t mtu,
                 int64_t window, int64_t first) {
  if (alive) return nullptr;
  static bool resolved = (Time::SetResolution(Time::PS), true);
  (void)resolved;
  uint32_t segment = uint32_t(mtu) - kHeaders;
  uint32_t segments = std::max<uint32_t>(uint32_t(window) / segment, 2);
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(segment));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(first ? first : segments));
  // slowly: a segment more for each that is acknowledged. Open windows stay as they are
  TypeId control = first ? TcpLinuxReno::GetTypeId() : TcpCubic::GetTypeId();
  Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(control));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(segments * segment));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(segments * segment));
  Config::SetDefault("ns3::TcpSocket::TcpNoDelay", BooleanValue(true));
  Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
  // nothing is lost, however long a queue: to send again would only be wrong
  Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(1e4)));
  Config::SetDefault("ns3::RttEstimator::InitialEstimation", TimeValue(Seconds(1e4)));
  Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(Seconds(1e4)));
  Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MicroSeconds(50)));
  alive = new Engine();
  alive->mtu = uint32_t(mtu);
  alive->dark = links;
  alive->once = first > 0;
  alive->Build(nodes, host, links, from, to, rate, delay);
  return alive;
}

void rf_free(void *handle) {
  delete static_cast<Engine *>(handle);
  alive = nullptr;
  Simulator::Destroy();
}

int rf_add(void *handle, int64_t n, const int64_t *path_offsets, const int32_t *path_links,
           const double *size, const double *start, const int64_t *after_offsets,
           const int32_t *after, const double *gap, const double *latency, const double *) {
  auto &engine = *static_cast<Engine *>(handle);
  int64_t first = int64_t(engine.flows.size());
  for (int64_t i = 0; i < n; ++i) {
    auto flow = std::make_unique<Flow>();
    flow->start = start ? start[i] : 0.0;
    flow->gap = gap ? gap[i] : 0.0;
    flow->latency = latency && !(size[i] > 0) ? latency[i] : 0.0;  // packets have their own
    flow->size = uint64_t(size[i]);
    flow->path.assign(path_links + path_offsets[i], path_links + path_offsets[i + 1]);
    flow->stands = std::find(flow->path.begin(), flow->path.end(), engine.dark) != flow->path.end();
    if (after) flow->after.assign(after + after_offsets[i], after + after_offsets[i + 1]);
    engine.flows.push_back(std::move(flow));
  }
  for (int64_t id = first; id < first + n; ++id) {
    Flow &flow = *engine.flows[id];
    for (int64_t before : flow.after)
      if (!std::isfinite(engine.flows[before]->finish)) {
        ++flow.unmet;
        engine.flows[before]->followers.push_back(id);
      }
  }
  for (int64_t id = first; id < first + n; ++id)
    if (!engine.flows[id]->unmet) engine.Ready(id);
  return 0;
}

int rf_watch(void *handle, int64_t n, const int32_t *ids) {
  auto &engine = *static_cast<Engine *>(handle);
  for (int64_t i = 0; i < n; ++i) {
    Flow &flow = *engine.flows[ids[i]];
    if (flow.ready && std::isnan(flow.begun) && !flow.watched[kReady])
      engine.told_ready.push_back(ids[i]);
    flow.watched[kReady] = std::isnan(flow.begun);
    flow.watched[kFinished] = !std::isfinite(flow.finish);
  }
  return 0;
}

int rf_run(void *handle, double until) { return static_cast<Engine *>(handle)->Run(until); }

const char *rf_error(void *handle) { return static_cast<Engine *>(handle)->error.c_str(); }

int64_t rf_event_count(void *handle) {
  return int64_t(static_cast<Engine *>(handle)->events.size());
}

void rf_take_events(void *handle, double *time, int64_t *flow, int8_t *kind) {
  int64_t i = 0;
  for (const Event &event : static_cast<Engine *>(handle)->events) {
    time[i] = event.time;
    flow[i] = event.flow;
    kind[i++] = event.kind;
  }
}

int rf_reroute(void *handle, int64_t n, const int32_t *ids, const int64_t *offsets,
               const int32_t *links) {
  auto &engine = *static_cast<Engine *>(handle);
  for (int64_t i = 0; i < n; ++i)
    engine.Reroute(ids[i], links + offsets[i], links + offsets[i + 1]);
  return 0;
}

int64_t rf_active(void *handle, int32_t *ids) {
  auto &engine = *static_cast<Engine *>(handle);
  int64_t n = 0;
  for (size_t id = 0; id < engine.flows.size(); ++id)
    if (engine.flows[id]->active) {
      if (ids) ids[n] = int32_t(id);
      ++n;
    }
  return n;
}

void rf_remaining(void *handle, int64_t n, const int32_t *ids, double *left) {
  auto &engine = *static_cast<Engine *>(handle);
  for (int64_t i = 0; i < n; ++i) {
    const Flow &flow = *engine.flows[ids[i]];
    left[i] = std::isfinite(flow.finish) ? 0.0 : double(flow.size - flow.received);
  }
}

double rf_now(void *handle) { return static_cast<Engine *>(handle)->shown; }

int64_t rf_finished(void *handle) { return static_cast<Engine *>(handle)->finished; }

int64_t rf_flows(void *handle) { return int64_t(static_cast<Engine *>(handle)->flows.size()); }

void rf_times(void *handle, double *start, double *finish) {
  auto &engine = *static_cast<Engine *>(handle);
  for (size_t id = 0; id < engine.flows.size(); ++id) {
    if (start) start[id] = engine.flows[id]->begun;
    if (finish) finish[id] = engine.flows[id]->finish;
  }
}

void rf_link_bytes(void *handle, double *bytes) {
  auto &engine = *static_cast<Engine *>(handle);
  for (size_t k = 0; k < engine.links.size(); ++k) bytes[k] = engine.links[k].bytes;
  bytes[engine.links.size()] = 0;
}

}  // extern "C"
