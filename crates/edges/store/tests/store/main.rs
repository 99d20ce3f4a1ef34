//! What the store promises, over SQLite and over PostgreSQL.
//!
//! Each contract is a function of an empty database. SQLite runs them as tests of their own; PostgreSQL runs all in one
//! test, because starting a server takes longer than they do.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod backends;
mod batches;
mod crash;
mod external;
mod identity;
mod keys;
mod postgres;
mod sessions;
mod upgrade;
mod usage;

use backends::Database;

macro_rules! contracts {
    ($($module:ident::$name:ident,)*) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$module::$name(super::Database::sqlite()).await;
                }
            )*
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn postgres_keeps_the_same_contracts() {
            let Some(mut server) = postgres::Server::start() else { return };
            $(
                println!("{}", stringify!($name));
                $module::$name(Database::postgres(&server, stringify!($name)).await).await;
            )*
            usage::a_server_that_comes_back_gets_what_it_missed(&mut server).await;
        }
    };
}

contracts! {
    identity::of_racing_first_owners_one_wins,
    identity::the_first_owner_takes_an_organisation_without_users,
    identity::users_are_found_changed_and_removed,
    identity::fields_are_checked,
    identity::an_organisation_keeps_an_owner,
    identity::passwords_are_checked_and_hashed_anew,
    external::whoever_comes_first_does_not_own_the_server,
    external::an_identity_stands_for_one_user,
    external::an_account_follows_the_provider,
    external::identities_are_linked_and_unlinked,
    keys::a_key_stands_for_its_user_until_revoked,
    keys::changes_of_the_user_count_at_once,
    keys::keys_of_others_are_out_of_reach,
    keys::the_last_use_is_stored_coarsely,
    keys::only_keys_that_work_count_toward_the_most,
    keys::known_keys_outlive_the_database,
    sessions::a_session_lives_rotates_and_ends,
    sessions::a_copied_token_ends_the_session,
    sessions::of_requests_that_come_together_one_rotates,
    sessions::the_list_of_devices_is_the_users_own,
    batches::files_are_their_owners_and_bounded,
    batches::a_batch_takes_its_steps_once,
    batches::batches_that_wait_are_bounded,
    batches::files_go_when_their_time_or_their_user_has_gone,
    batches::earlier_work_goes_on_while_its_key_and_user_do,
    usage::events_count_once_and_sum_up,
    usage::sums_by_each_group_come_in_pages,
    usage::an_export_streams_every_event_in_order,
    usage::a_writer_writes_and_leaves_nothing_behind,
    usage::what_the_database_missed_is_written_later,
    usage::concurrent_writers_do_not_stop_each_other,
    upgrade::a_database_of_the_first_version_opens_and_works,
    upgrade::a_database_of_the_second_version_opens_and_works,
    upgrade::a_newer_or_changed_database_is_refused,
    upgrade::programs_that_start_together_all_open_it,
}
