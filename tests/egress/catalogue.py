"""The catalogue of what a gateway is tested for, groups A to G, and which tests cover each case.

A test is `Class.test_name` of this folder, `FILE:test_name` of tests/integration (FILE without test_ and .py), a unit
test `Suite.Name`, or `fuzz:NAME`. `open` says what of a case has no test, and why. document.py checks that all exist.
"""
import collections

Case = collections.namedtuple("Case", "group number what tests open")
GROUPS = {"A": "Boundary", "B": "DNS", "C": "Names", "D": "TLS", "E": "HTTP", "F": "Secrets", "G": "Robustness"}


def case(number, what, tests, open=None):  # noqa: A002
    group = next(g for g, last in zip(GROUPS, (9, 22, 30, 42, 53, 68, 73)) if number <= last)
    return Case(group, number, what, tests.split(), open)


CASES = [
    case(1, "without a rule nothing is reached, on any port, in both families", "Boundary.test_what_no_rule_allows_is_reset_and_sent_nowhere"),
    case(2, "UDP, SCTP, ICMP and their like fail at once", "Boundary.test_what_is_neither_tcp_nor_dns_fails_at_once gateway_datapath:test_what_is_no_tcp_is_refused_at_once "
         "gateway_datapath:test_no_program_makes_packets_of_its_own"),
    case(3, "raw frames, foreign sources, VLAN tags, fragments", "gateway_datapath:test_no_program_makes_packets_of_its_own",
         "no program inside gets a socket for packets, so nothing shows what the rules would do with frames"),
    case(4, "root inside changes rules, routes, addresses", "gateway_datapath:test_nobody_inside_changes_the_wire"),
    case(5, "the host, its networks, metadata, the control plane", "Boundary.test_the_host_its_networks_and_metadata_are_no_destination "
         "Boundary.test_an_address_of_the_host_is_none_though_it_is_the_internets gateway_datapath:test_the_listeners_own_ports_are_no_door "
         "serve_secrets:test_a_sandbox_reaches_anothers_port_and_nothing_else_of_the_server"),
    case(6, "a gateway that is killed, rules that are not all there", "gateway:test_the_gateways_death_is_a_reset_and_never_open gateway_datapath:test_a_rule_that_is_not_there_makes_no_sandbox "
         "gateway_detached:test_a_dead_gateway_is_started_again_with_what_holds_now"),
    case(7, "two sandboxes with the same addresses", "gateway_datapath:test_two_sandboxes_are_told_apart_by_their_sockets "
         "Secrets.test_the_placeholder_of_another_sandbox_is_a_word_like_any_other", "another sandbox's placeholder is sent as the word that it is, not refused: no gateway knows those of others"),
    case(8, "nothing is left of a sandbox", "gateway:test_nothing_is_left_of_many gateway_datapath:test_a_hundred_leave_no_namespace gateway_datapath:test_fifty_leave_no_namespace"),
    case(9, "no descriptor of the host is inherited", "gateway_datapath:test_without_its_namespace_there_is_no_wire Gateway.ItsSocketsNeverWaitAndGoNowhereElse"),
    case(10, "thousands of names, and no packet leaves", "Dns.test_no_query_leaves_the_host_however_many_there_are"),
    case(11, "the same over TCP, to other servers, with padding", "Dns.test_no_query_leaves_the_host_however_many_there_are gateway_datapath:test_dns_is_answered_by_whom_it_was_asked"),
    case(12, "other types of records", "Dns.test_no_query_leaves_the_host_however_many_there_are DnsReplies.OtherTypesHaveNoRecords"),
    case(13, "malformed queries", "Dns.test_malformed_queries_end_nothing Dns.test_a_query_with_records_of_its_own_is_refused DnsQuery.ItsNameIsUncompressedAndShort fuzz:dns_query"),
    case(14, "mixed letter case", "DnsReplies.TheAnswerKeepsTheCaseThatTheQueryMixed NamesInTheirPlaces.test_no_other_name_is_taken_for_an_allowed_one_in_dns"),
    case(15, "names with a search domain", "DnsReplies.ANameWithASearchDomainBehindItMakesTheResolverGoOn"),
    case(16, "both families are answered and lead somewhere at once", "Dns.test_both_families_lead_to_the_name_at_once"),
    case(17, "more names than places, and open connections", "NameTable.NoAddressWithAnOpenConnectionChangesItsName DnsReplies.TenThousandNamesStayWithinTheTable"),
    case(18, "an address that no name has", "Dns.test_an_address_of_ours_that_no_name_has_leads_nowhere"),
    case(19, "a denied name that is allowed later", "gateway_detached:test_a_policy_is_changed_while_it_runs DnsReplies.ADeniedNameIsAnsweredLikeAnAllowedOne",
         "by one client; the caches of several runtimes are not tried"),
    case(20, "answers of a hostile resolver", "Dns.test_a_name_is_resolved_once_and_what_was_judged_is_dialed gateway:test_of_several_addresses_only_the_internets_are_dialed_and_a_name_is_resolved_once",
         "there is no pinned mode; chains of aliases and a resolver that never answers are not tried"),
    case(21, "a rate of queries", "Dns.test_queries_are_answered_at_a_rate Meter.BoundsNewConnectionsAndQueriesASecond"),
    case(22, "DNS over TLS and HTTPS", "Boundary.test_no_resolver_is_reached_because_it_is_one", "DNS over HTTPS is a host like others: there is no list of resolvers that allow-public leaves out"),
    case(23, "bytes that end or part a name", "CanonicalHost.RefusesControlsAndWhatPartsAUrl NamesInTheirPlaces.test_no_other_name_is_taken_for_an_allowed_one_in_a_hello "
         "NamesInTheirPlaces.test_no_other_name_is_taken_for_an_allowed_one_in_host NamesInTheirPlaces.test_no_other_name_is_taken_for_an_allowed_one_in_dns "
         "AskedConnections.test_no_other_name_is_taken_for_an_allowed_one_in_a_request_for_a_connection AskedConnection.OfSocks5HasNoNameThatEndsElsewhere",
         ":authority is read by the same code and tried with other hosts alone"),
    case(24, "names that look like an allowed one", "CanonicalHost.OtherNamesAreOtherNames HostPattern.OneStarIsEveryNameBelow NamesInTheirPlaces.test_no_other_name_is_taken_for_an_allowed_one_in_a_hello"),
    case(25, "letter case and dots", "CanonicalHost.FoldsCaseAndOneDotAtTheEnd NamesInTheirPlaces.test_one_name_in_every_spelling_is_one"),
    case(26, "names beyond ASCII", "CanonicalHost.NamesInUtf8BecomeALabels CanonicalHost.RefusesWhatIdnaDoes"),
    case(27, "user names, fragments, ports", "CanonicalAuthority.RefusesEverythingElse NamesInTheirPlaces.test_no_other_name_is_taken_for_an_allowed_one_in_host "
         "AskedConnections.test_no_other_name_is_taken_for_an_allowed_one_in_a_request_for_a_connection AskedConnection.OfHttpIsWellFormedAndOfOneMeaning"),
    case(28, "spellings of addresses", "CanonicalHost.RefusesEverySpellingOfAnIpv4AddressButOne CanonicalHost.TakesIpv6InBracketsAlone IpClass.OfIpv4WithinIpv6 "
         "AskedConnection.OfSocks5IsANameOrAnAddress"),
    case(29, "wildcards", "HostPattern.OneStarIsEveryNameBelow HostPattern.TwoStarsAreTheNameAsWell HostPattern.IsNotEverythingBelowAPublicSuffix HostPattern.HasItsStarAsTheWholeFirstLabelAlone"),
    case(30, "what wins over what", "NetworkPolicy.ARuleThatDeniesWinsWhereverItStands NetworkPolicy.ARangeLiftsTheFloorForWhatItsRuleAllows gateway:test_a_range_serves_no_other_rule_and_no_default"),
    case(31, "hellos that are odd, cut or long", "Tls.test_hellos_that_can_be_read_in_two_ways_are_refused Tls.test_a_hello_arrives_whole_however_it_is_cut Tls.test_tls_without_a_name_is_no_way_to_a_name "
         "ClientHello.MayBeSplitAtEveryByteOverSegments ClientHello.MayBeSplitAtEveryByteOverRecords ClientHello.MayHave64KiBAndNoByteMore", "a hello that takes five seconds is not tried"),
    case(32, "a request for another host than the hello's", "Requests.test_a_host_behind_an_allowed_server_is_not_reached_by_its_name Requests.test_every_request_of_a_connection_is_judged "
         "Requests.test_an_absolute_target_names_what_host_names gateway_h2:test_a_stream_for_another_host_goes_nowhere"),
    case(33, "CONNECT, and another name inside", "Requests.test_a_rule_for_tls_allows_nothing_without_it Requests.test_what_a_rule_says_of_requests_has_tls_opened "
         "AskedConnections.test_what_is_inside_is_for_the_host_that_was_asked_for"),
    case(34, "a hello for another name than was asked for; curl --resolve", "Tls.test_a_hello_names_what_was_asked_for Tls.test_where_a_program_wants_an_allowed_name_to_be_decides_nothing "
         "Tls.test_a_server_is_judged_by_its_name_and_not_by_its_address"),
    case(35, "encrypted hellos", "Tls.test_a_hello_that_may_hide_a_name_is_known_as_one ClientHello.SaysWhetherTheNameMayBeHidden",
         "it is recorded and not refused where TLS is spliced: no key for one comes by DNS, and clients send the extension without one"),
    case(36, "servers that cannot be believed", "Tls.test_a_server_that_cannot_be_believed_is_sent_nothing gateway_inspect:test_a_server_that_cannot_be_believed_is_sent_nothing", "a rule can pin no key"),
    case(37, "the certificates that clients see", "Authority.CertificatesOfNamesHoldBeforeAStrictVerifier"),
    case(38, "old versions, early data, ways to another protocol", "gateway_inspect:test_old_versions_of_tls_are_refused gateway_inspect:test_a_server_that_speaks_no_tls_of_today_is_told_apart "
         "Requests.test_no_answer_leads_past_the_gateway", "certificates of clients and renegotiation are not tried"),
    case(39, "each sandbox has an authority of its own", "gateway_inspect:test_each_sandbox_has_an_authority_of_its_own_and_its_key_nowhere Authority.EachHasAKeyOfItsOwn"),
    case(40, "clients find the authority, and verify", " ".join(f"Clients.test_{name}" for name in
         ("curl", "wget", "git", "node", "npm", "python_urllib", "python_requests", "pip", "java", "cargo", "go")), "one version of Node.js, the machine's"),
    case(41, "clients that read no variable of proxies", "Boundary.test_programs_need_be_told_of_no_proxy Clients.test_java Clients.test_go"),
    case(42, "a browser", "", "no browser is in the images or in the tests"),
    case(43, "requests that can be parted in two ways", "Requests.test_a_server_gets_one_request_or_none Heads.AreAcceptedOrRefused Body.RefusesMalformedChunks fuzz:http_request fuzz:http_body"),
    case(44, "allowed and denied in one connection", "Requests.test_every_request_of_a_connection_is_judged gateway:test_requests_without_tls_are_judged_one_by_one"),
    case(45, "spellings of paths", "Requests.test_a_path_is_judged_and_sent_in_one_spelling CanonicalTarget.RefusesHiddenSeparators CanonicalTarget.RefusesDotsThatServersResolveInTwoWays fuzz:url_path"),
    case(46, "methods", "Requests.test_methods_are_those_of_the_rule_as_they_are_written"),
    case(47, "redirects", "Requests.test_a_redirect_is_a_request_like_any_other"),
    case(48, "WebSockets and other upgrades", "Requests.test_only_a_websocket_is_upgraded_to Requests.test_a_websocket_needs_a_rule_that_says_so Requests.test_no_server_changes_the_protocol_unasked "
         "gateway_inspect:test_a_websocket_passes_where_a_rule_says_so", "frames pass unread: fragments, pings and closes are not told apart"),
    case(49, "HTTP/2", "gateway_h2:test_curl_speaks_it_to_servers_of_either_kind gateway_h2:test_streams_that_are_broken_off_too_fast_end_their_connection gateway_h2:test_heads_have_their_bound "
         "gateway_h2:test_a_hundred_streams_are_open_at_once_and_no_more gateway_h2:test_a_stream_ends_on_which_nothing_moves gateway_h2:test_grpc_calls_of_every_kind_pass",
         "a policy that changes under open streams is tried in the gateway's own tests alone"),
    case(50, "long streams, half connections, kinds of answers", "Requests.test_bodies_of_any_size_and_half_a_connection_pass Requests.test_answers_of_every_kind_pass_as_they_are gateway_inspect:test_large_bodies_go_both_ways_whole_and_up_to_their_bound "
         "Response.SaysHowItsBodyEnds", "ten minutes and gigabytes are not tried"),
    case(51, "proxies within", "Requests.test_other_ways_to_ask_for_a_proxy_are_no_http Requests.test_what_a_rule_says_of_requests_has_tls_opened "
         "AskedConnections.test_no_other_command_and_no_other_protocol_is_spoken"),
    case(52, "limits", "gateway:test_limits_of_connections_and_bytes_hold gateway:test_bodies_go_through_whole_up_to_their_bound Meter.BoundsNewConnectionsAndQueriesASecond "
         "Meter.ARateHoldsBackWhatIsFasterForAllConnectionsTogether", "rates are not measured over the whole"),
    case(53, "policies that change", "gateway_detached:test_a_connection_that_is_denied_from_now_on_is_reset gateway_detached:test_what_cannot_be_applied_is_said Gateway.ANewPolicyResetsWhatItDeniesAndNothingElse",
         "a hundred open streams are not tried"),
    case(54, "each place gets the value, and the sandbox never", "gateway_secrets:test_the_server_gets_the_value_where_the_rule_names_the_place Secrets.test_the_sandbox_has_a_placeholder_and_the_server_gets_the_value "
         "gateway_secrets:test_the_value_is_nowhere_inside_and_in_no_process_but_its_keepers Substitute.PutsItIntoThePath "
         "gateway_canary:test_it_is_in_no_memory_environment_or_command_line_but_the_gateways"),
    case(55, "where it does not go", "Secrets.test_no_other_host_gets_it_and_no_redirect_takes_it_along Secrets.test_it_goes_nowhere_without_tls Secrets.test_no_more_often_than_its_rule_says "
         "gateway_secrets:test_what_may_not_have_it_gets_nothing Substitute.RefusesARevokedSecretAndOneWithoutAValue "
         "gateway_secrets:test_a_policy_without_a_secret_revokes_it_and_no_policy_widens_it"),
    case(56, "cut and encoded", "Secrets.test_no_encoding_takes_the_placeholder_past_the_search LeakCheck.StopsEveryEncodingAtEverySplitBeforeItIsOut Substitute.FindsThePlaceholderInWhateverSpellingItsPlaceHas",
         "frames of HTTP/2 are not cut at every byte"),
    case(57, "headers that servers repeat", "Secrets.test_it_goes_to_its_places_alone Substitute.RefusesHeadersThatServersRepeat"),
    case(58, "answers with the value", "Secrets.test_an_answer_has_the_placeholder_where_the_server_says_the_value gateway_secrets:test_answers_have_the_placeholder_where_servers_say_the_value "
         "Scrub.NoFormOfTheValueComesThroughAtAnySplit Scrub.AHeadHasNoFormOfTheValue Scrub.EventsPassAsTheyCome", "compressed answers are broken off, not scrubbed; a WebSocket to such a host is refused"),
    case(59, "TRACE", "Substitute.RefusesTraceWithASecret Requests.test_methods_are_those_of_the_rule_as_they_are_written"),
    case(60, "values that are refused", "Placeholder.NoneForAValueThatIsRefused gateway_secrets:test_what_is_wrong_is_said_before_anything_starts"),
    case(61, "what the client says of itself", "Secrets.test_what_the_client_says_of_itself_gives_way_to_what_is_set Substitute.ProxyAuthorizationIsNeverSent"),
    case(62, "new values", "serve_secrets:test_a_kept_secret_is_used_renewed_and_revoked Scrub.OldValuesGetThePlaceholderToo "
         "gateway_commands:test_it_runs_again_before_the_value_ends_and_no_request_fails "
         "gateway_commands:test_while_it_fails_the_value_holds_to_its_end_and_then_there_is_none", "files are read once"),
    case(63, "SigV4", "gateway_sigv4:test_boto_works_as_it_is gateway_sigv4:test_curl_works_as_it_is gateway_sigv4:test_the_clock_of_the_sandbox_means_nothing "
         "gateway_sigv4:test_what_the_credentials_are_not_for_is_sent_nowhere gateway_sigv4:test_other_ways_to_sign_are_refused_clearly "
         "gateway_sigv4:test_what_was_not_signed_with_the_placeholders_is_not_signed_anew gateway_sigv4:test_a_long_body_that_is_another_is_never_whole "
         "gateway_sigv4:test_no_placeholder_goes_anywhere_else SigV4.SignsAsTheExamplesOfTheTestSuite SigV4.SignsAsTheExamplesOfS3",
         "bodies whose chunks are signed are refused, as signatures in URLs and SigV4A's are"),
    case(64, "OAuth", "", "tokens are not fetched or renewed"),
    case(65, "placeholders have the shape of their values", "Placeholder.OfAJwtParsesAsOneOfTheSameLength Placeholder.KeepsAPrefix gateway_secrets:test_the_placeholder_has_the_shape_and_nothing_of_the_value"),
    case(66, "records, command lines and environments of ours", "gateway_secrets:test_who_keeps_the_sandbox_does_not_know_the_value gateway_secrets:test_the_gateways_own_environment_and_command_line_have_no_value "
         "gateway_canary:test_it_is_in_no_memory_environment_or_command_line_but_the_gateways gateway_canary:test_it_is_in_no_file_of_ours_and_none_of_the_sandboxs "
         "gateway_canary:test_a_gateway_that_crashes_leaves_none_of_it", "of a server's processes files are searched, not memory"),
    case(67, "no connection of one is used for another", "Requests.test_no_two_clients_share_a_connection"),
    case(68, "copies of a sandbox", "serve_secrets:test_a_fork_has_the_placeholder_and_the_secret", "a snapshot is files alone, so there is no copied memory with an authority in it"),
    case(69, "fuzzing", "fuzz:host_name fuzz:url_path fuzz:http_request fuzz:client_hello fuzz:dns_query fuzz:json_span fuzz:substitute fuzz:sigv4 fuzz:scrub fuzz:network_policy fuzz:first_bytes"),
    case(70, "without descriptors or memory, slow peers", "Listener.OutOfDescriptorsItWaitsAndGoesOn Stream.ASlowReaderHoldsTheWriterBack", "of the gateway as a whole it is not tried"),
    case(71, "many connections, speed", "", "measured by bench/egress.py, which is no test"),
    case(72, "sanitizers", "", "./dev test runs the unit tests under the address and undefined sanitizers; not under the thread sanitizer"),
    case(73, "the same requests by another proxy", "gateway_squid:test_nothing_passes_that_squid_keeps_back_without_a_reason"),
]
